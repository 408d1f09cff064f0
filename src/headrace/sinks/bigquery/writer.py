"""The task's half: rows are appended to a stream of the task's own, which no reader sees."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.errors import SinkError, SinkUnavailableError
from headrace.sinks.api import RejectedRow
from headrace.sinks.bigquery import connection
from headrace.sinks.bigquery.connection import (
    NAME,
    Streams,
    TableAddress,
    lacks_columns,
    retry_for,
    translated_errors,
)
from headrace.sinks.bigquery.conversion import RowForm

if TYPE_CHECKING:
    import pyarrow as pa

ROW_TOO_LARGE, REJECTED = "row-too-large", "rejected-by-bigquery"
# Below the 4 MB that servers of gRPC take by default; BigQuery takes 10 MB at the least.
_REQUEST_BYTES = 2 * 1024 * 1024
_MAX_ROW_BYTES = 10 * 1024 * 1024
_SIZE = re.compile(r"larger than|too large|exceed\w* .*(size|bytes)", re.IGNORECASE)
_QUOTA = re.compile(r"quota|throughput|rate limit", re.IGNORECASE)
_ALREADY_EXISTS = 6
_PASSING_CODES = frozenset({1, 2, 4, 8, 9, 10, 13, 14})  # of gRPC: may be taken later


class WrittenStream(msgspec.Struct, frozen=True):
    """A piece: the name of a finalized stream without its table, and how many rows it has."""

    stream: str
    rows: int


@dataclass(frozen=True)
class _Part:
    """Rows of one request.

    Attributes:
        rows: as the table takes them.
        places: of the rows, in those handed to :meth:`StreamWriter.write`.
    """

    rows: pa.Table
    places: Sequence[int]

    @property
    def may_be_too_large(self) -> bool:
        """Whether it is one row, and more than a request has otherwise."""
        return len(self.places) == 1 and self.rows.nbytes > _REQUEST_BYTES

    def without(self, indexes: Collection[int]) -> _Part:
        """Returns the rows but for some."""
        import pyarrow as pa

        kept = [index for index in range(len(self.places)) if index not in indexes]
        rows = self.rows.take(pa.array(kept, pa.int64()))  # none of no type, if it is empty
        return _Part(rows, [self.places[index] for index in kept])


@dataclass(frozen=True)
class _CallEnd:
    """What a call ended with.

    Attributes:
        appended: how many of its parts are known to be appended, from the first one.
        unanswered: how many have no answer. They may be appended all the same.
        rejected: rows of the next part, by their index, with BigQuery's messages.
        error: what ended it, where that is not the answer to the last part.
        is_of_next: whether the error is known to be that of the next part. A call that ends by an
            error may lose answers to parts before the one at fault.
    """

    appended: int
    unanswered: int
    rejected: Mapping[int, str]
    error: SinkError | None
    is_of_next: bool


class StreamWriter:
    """Appends the rows of one task to a PENDING stream, made with the first row.

    Args:
        address: of the table.
        form: of its rows.
        task_id: of the attempt.
    """

    def __init__(self, address: TableAddress, form: RowForm, task_id: str) -> None:
        self._address, self._form = address, form
        self._trace_id = f"headrace:{task_id}"
        self._streams: Streams | None = None
        self._path = ""
        self._offset = 0
        self._has_unanswered = False  # requests of the stream
        self._is_one_at_a_time = False  # since the call does not say which request is at fault
        self._finished: list[WrittenStream] = []

    def write(self, rows: pa.Table) -> list[RejectedRow]:
        """Appends the rows; those that the table does not take are returned.

        Raises:
            SinkUnavailableError: if BigQuery does not take them for two minutes.
            SinkError: if it refuses all of them.
        """
        rejected = {
            int(place): RejectedRow(int(place), fault.reason, fault.detail)
            for fault in self._form.rejected(rows)
            for place in fault.rows.nonzero()[0]
        }
        places: Sequence[int] = range(rows.num_rows)
        if rejected:
            places = [place for place in places if place not in rejected]
        # Converted without the rejected rows: one value that does not fit fails the whole cast.
        if places:
            taken = self._form.converted(rows.take(places) if rejected else rows)
            for row in self._append(_Part(taken, places)):
                rejected[row.index] = row
        return [rejected[place] for place in sorted(rejected)]

    def close(self) -> list[str]:
        """Finalizes the stream, and returns its name; nothing if there are no rows.

        Raises:
            SinkUnavailableError: if BigQuery does not answer.
            SinkError: if the stream has not the rows that were appended.
        """
        streams, self._streams = self._streams, None
        if streams is None:
            return []
        try:
            self._finish(streams)
        finally:
            streams.close()
        return [msgspec.json.encode(stream).decode() for stream in self._finished]

    def abort(self) -> None:
        """Closes the connection: a stream that is not finalized can't be committed, and expires."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams.close()

    def _finish(self, streams: Streams) -> None:
        """Finalizes the stream, if it has rows; the next ones go into another stream."""
        if self._offset:
            count = retry_for(lambda: self._finalized(streams), connection.TASK_WAIT_SECONDS)
            if count != self._offset:
                reason = f"stream {self._path} has {count} rows, and {self._offset} were appended"
                raise SinkError(NAME, reason)
            name = self._path.rpartition("/")[2]
            self._finished.append(WrittenStream(name, self._offset))
        self._path, self._offset, self._has_unanswered = "", 0, False

    def _finalized(self, streams: Streams) -> int:
        with translated_errors():
            answer = streams.call("finalize_write_stream", name=self._path)
        return int(answer.row_count)

    def _opened(self) -> Streams:
        """Opens the connection and the stream at the first row.

        A table that was made a moment ago is not known to the Storage Write API at once.
        """
        from google.api_core.exceptions import NotFound

        streams = self._streams or Streams(self._address)
        self._streams = streams
        if not self._path:
            with translated_errors(NotFound):
                stream = streams.call(
                    "create_write_stream",
                    parent=self._address.path,
                    write_stream={"type_": "PENDING"},
                )
            self._path = stream.name
        return streams

    def _append(self, part: _Part) -> Iterator[RejectedRow]:
        """Appends rows, and yields those that are rejected; a lost answer sends rows again."""
        waiting = []
        for cut in _cut(part):
            if len(cut.places) == 1 and cut.rows.nbytes > _MAX_ROW_BYTES:
                detail = (
                    f"the row has {cut.rows.nbytes:,} bytes, and BigQuery takes 10 MB a request"
                )
                yield RejectedRow(cut.places[0], ROW_TOO_LARGE, detail)
            else:
                waiting.append(cut)
        self._is_one_at_a_time = False
        while waiting:
            yield from retry_for(lambda: self._append_some(waiting), connection.TASK_WAIT_SECONDS)

    def _append_some(self, waiting: list[_Part]) -> list[RejectedRow]:
        """Appends parts in their order, and takes those that are done out of the list.

        Returns:
            rejected rows of the first part, which stays in the list without them, as does what is
            behind it.

        Raises:
            SinkUnavailableError: if the rest may be taken later.
            SinkError: if it is not taken, and no row is at fault.
        """
        streams, parts = self._opened(), waiting[: 1 if self._is_one_at_a_time else None]
        ended = self._called(streams, parts)
        self._has_unanswered |= ended.unanswered > 0
        for part in parts[: ended.appended]:
            self._offset += len(part.places)
        del waiting[: ended.appended]
        if ended.rejected:
            return self._taken_out(streams, waiting, REJECTED, ended.rejected)
        if ended.error is None:
            return []
        if not _is_of_size(ended.error):
            raise ended.error
        if not ended.is_of_next:
            self._is_one_at_a_time = True
            return []
        if not waiting[0].may_be_too_large:
            raise ended.error
        return self._taken_out(streams, waiting, ROW_TOO_LARGE, {0: ended.error.reason})

    def _called(self, streams: Streams, parts: Sequence[_Part]) -> _CallEnd:
        """Sends parts, and returns what the call ended with."""
        from google.api_core.exceptions import FailedPrecondition

        appended, answered, error = 0, 0, None
        rejected: dict[int, str] = {}
        try:
            with translated_errors(FailedPrecondition):  # so ends a connection that was idle
                answers = streams.append(self._path, self._requests(parts))
                for answer in itertools.islice(answers, len(parts)):
                    answered += 1
                    if not rejected:
                        rejected = _rejected(answer)
                        appended += not rejected
        except SinkError as raised:
            error = raised
        if answered < len(parts) and error is None:
            error = SinkUnavailableError(NAME, "the connection ended before all rows were appended")
        is_of_next = answered > appended or len(parts) == appended + 1
        return _CallEnd(appended, len(parts) - answered, rejected, error, is_of_next)

    def _taken_out(
        self, streams: Streams, waiting: list[_Part], reason: str, rejected: Mapping[int, str]
    ) -> list[RejectedRow]:
        """Takes rows out of the first part; what is behind them moves to other offsets."""
        if self._has_unanswered:
            # Requests without an answer may still arrive: at their offsets nothing else may be
            # sent, since existing rows count as appended.
            self._finish(streams)
        first = waiting.pop(0)
        left = first.without(rejected.keys())
        if left.places:
            waiting.insert(0, left)
        return [RejectedRow(first.places[at], reason, detail) for at, detail in rejected.items()]

    def _requests(self, parts: Sequence[_Part]) -> Iterator[Any]:
        from google.cloud.bigquery_storage_v1.types import AppendRowsRequest

        offset = self._offset
        for number, part in enumerate(parts):
            request = AppendRowsRequest(offset=offset)
            if not number:
                request.write_stream, request.trace_id = self._path, self._trace_id
                schema = part.rows.schema.serialize().to_pybytes()
                request.arrow_rows.writer_schema.serialized_schema = schema
            [batch] = part.rows.combine_chunks().to_batches()
            request.arrow_rows.rows.serialized_record_batch = batch.serialize().to_pybytes()
            offset += len(part.places)
            yield request


def _rejected(answer: Any) -> dict[int, str]:
    """Returns the rows of a request that are rejected; none: all of them are appended.

    Raises:
        SinkUnavailableError: if they may be taken later.
        SinkError: if they are not taken for another reason.
    """
    code = answer.error.code
    if code in (0, _ALREADY_EXISTS):
        return {}
    if answer.row_errors:
        return {error.index: error.message for error in answer.row_errors}
    is_passing = code in _PASSING_CODES or lacks_columns(answer.error.details)
    raise (SinkUnavailableError if is_passing else SinkError)(NAME, answer.error.message)


def _is_of_size(error: SinkError) -> bool:
    """Whether a request is larger than the server takes."""
    return bool(_SIZE.search(error.reason) and not _QUOTA.search(error.reason))


def _cut(part: _Part) -> Iterator[_Part]:
    """Yields parts of a size that a request may have; a larger row is a part of its own."""
    count = len(part.places)
    size = max(1, count * _REQUEST_BYTES // max(1, part.rows.nbytes))
    for start in range(0, count, size):
        cut = _Part(part.rows.slice(start, size), part.places[start : start + size])
        # Of rows of very different sizes, some may be many times larger than others.
        yield from (
            _cut(cut) if len(cut.places) > 1 and cut.rows.nbytes > 2 * _REQUEST_BYTES else (cut,)
        )
