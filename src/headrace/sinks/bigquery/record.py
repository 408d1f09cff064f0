"""What is kept of a pipeline beside its table: positions, and the commit that is under way.

It lies in the dataset of the table, in the schema of a table without rows, as descriptions of
columns (``docs/decisions/0038-...`` says why): reading and changing it costs nothing, it is changed
only as it was read (``If-Match``), and it outlives checkpoint and lake.

A batch changes it twice: *prepared* before its streams are committed, with their names, and
*settled* after. What finds a prepared commit settles it by committing the streams, too.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import msgspec

from headrace.errors import CommitUnknownError, SinkError, TableMismatchError
from headrace.sinks.bigquery import connection
from headrace.sinks.bigquery.connection import NAME, Streams, TableAddress, Tables, patiently
from headrace.sinks.bigquery.streams import StreamsOutcome, StreamsRefusedError, commit_streams

# BigQuery's limits: characters of a column's description, and columns of a table.
_PART_CHARACTERS, _MAX_PARTS = 1_024, 10_000
_DESCRIPTION = "What headrace has written to a table, for one pipeline. It must not be changed."
OUTCOME_LABEL = "headrace_batch"
"""Label by which an operator says what became of a batch: ``committed`` or ``void``."""
MAX_STREAM_AGE_MS = 2 * 86_400_000
"""For so long at least BigQuery knows a stream: its documents speak of four days."""


class Prepared(msgspec.Struct, frozen=True):
    """A commit that is decided, and perhaps not done.

    Attributes:
        versions: what it records, by application id.
        streams: names, without the table, of those that it commits.
        rows: in them.
        at_ms: when it was prepared, or before, by BigQuery's clock in milliseconds since 1970.
    """

    versions: dict[str, int]
    streams: list[str]
    rows: int
    at_ms: int


class CommitRecord(msgspec.Struct, frozen=True):
    """What is kept.

    Attributes:
        versions: by application id, the number recorded with the rows that are in the table.
        prepared: the commit that is under way; None: none is.
        table: when the table was made, as BigQuery says it.
        writer: of this record; another one each time.
    """

    versions: dict[str, int] = {}
    prepared: Prepared | None = None
    table: str = ""
    writer: str = ""


# Made at import: msgspec crashes where several threads are the first to decode a class.
_RECORDS = msgspec.json.Decoder(CommitRecord)


def record_address(address: TableAddress, pipeline: str) -> TableAddress:
    """Returns where the record of a pipeline lies that writes to a table."""
    name = re.sub(r"[^\w-]", "_", f"headrace_{address.table}_{pipeline}")
    digest = hashlib.blake2b(f"{address.table}/{pipeline}".encode(), digest_size=4).hexdigest()
    return replace(address, table=f"{name}_{digest}")


@dataclass(frozen=True)
class Held:
    """A record as it was read or written.

    Attributes:
        record: what it says.
        resource: the table that holds it, and with it the right to change it; None: there is none.
    """

    record: CommitRecord
    resource: Mapping[str, Any] | None


class RecordKeeper:
    """Reads, changes and settles the record of a pipeline that writes to a table.

    Args:
        tables: the REST interface.
        streams: the Storage Write API.
        address: of the table.
        pipeline: its name.
    """

    def __init__(
        self, tables: Tables, streams: Streams, address: TableAddress, pipeline: str
    ) -> None:
        self._tables, self._streams, self._table = tables, streams, address
        self.address = record_address(address, pipeline)
        self._held: Held | None = None

    @property
    def now_ms(self) -> int:
        """BigQuery's time at the last answer: clocks of machines may differ by days."""
        return self._tables.now_ms

    def table_made(self) -> str:
        """Returns when the table was made, as BigQuery says it; empty: there is none."""
        table = self._tables.get(self._table)
        return "" if table is None else str(table.get("creationTime", ""))

    def settled(self) -> Held:
        """Returns the record without a commit under way; it is read once, and after a conflict.

        Raises:
            SinkUnavailableError: if BigQuery does not answer.
            TableMismatchError: if the table was made again since a pipeline wrote to it.
            CommitUnknownError: if it can't be known whether a batch is in the table.
        """
        held = self._held or self._read()
        while held.record.prepared is not None:
            self.settle(held)
            held = self._held or self._read()
        return held

    def replace(self, before: Held, record: CommitRecord, *, is_urgent: bool = True) -> Held | None:
        """Puts a record in the place of another one; None: that is no longer there.

        Args:
            before: the one that is there.
            record: the new one.
            is_urgent: whether it is tried again while BigQuery does not take it.

        Raises:
            SinkUnavailableError: if it is not known which one is there.
            SinkError: if BigQuery refuses it.
        """
        written = msgspec.structs.replace(record, writer=uuid4().hex)
        self._held = None
        wait_seconds = connection.COMMIT_WAIT_SECONDS if is_urgent else 0.0
        resource = patiently(lambda: self._write(before.resource, written), wait_seconds)
        if resource is not None:
            self._held = Held(written, resource)
        elif self._read().record.writer != written.writer:
            return None  # or else it was written, and the answer was lost
        return self._held

    def settle(self, held: Held) -> StreamsOutcome:
        """Commits the streams of a prepared commit, and records what became of them.

        Raises:
            SinkUnavailableError: if BigQuery does not answer.
            SinkError: if it does not commit them, and no operator has said that it is not to.
            CommitUnknownError: as :meth:`settled`.
        """
        record, prepared = held.record, held.record.prepared
        if prepared is None:
            return StreamsOutcome.COMMITTED
        outcome = StreamsOutcome.COMMITTED
        if prepared.streams:
            outcome = self._outcome(held, prepared)
        versions = record.versions
        if outcome is StreamsOutcome.COMMITTED:
            versions = versions | prepared.versions
        settled = msgspec.structs.replace(record, versions=versions, prepared=None)
        try:
            self.replace(held, settled, is_urgent=False)
        except SinkError:
            # It is what the record means: the next one that changes or reads it writes it.
            self._held = Held(settled, held.resource)
        return outcome

    def _write(
        self, before: Mapping[str, Any] | None, record: CommitRecord
    ) -> Mapping[str, Any] | None:
        fields = _parts(record)
        if before is None:
            body = {"description": _DESCRIPTION, "schema": {"fields": fields}}
            return self._tables.insert(self.address, body)
        # Columns stay for ever: parts that are not needed are empty.
        unused = before["schema"]["fields"][len(fields) :]
        fields += [{**field, "description": ""} for field in unused]
        # What an operator has said of a batch holds for that one.
        body = {"schema": {"fields": fields}, "labels": {OUTCOME_LABEL: None}}
        return self._tables.patch(self.address, body, before["etag"])

    def _outcome(self, held: Held, prepared: Prepared) -> StreamsOutcome:
        """Commits streams; what an operator has said counts where BigQuery does not commit them."""
        said = ((held.resource or {}).get("labels") or {}).get(OUTCOME_LABEL)
        try:
            outcome = commit_streams(self._streams, self._table, prepared.streams)
        except StreamsRefusedError as error:
            if said == "void":
                return StreamsOutcome.GONE
            reason = (
                f"{error.reason}. The next start tries again. To have the {prepared.rows:,} rows"
                " written anew, stop each process of the pipeline, and"
                f" `bq update --set_label {OUTCOME_LABEL}:void {self.address.bq_name}`"
            )
            raise SinkError(NAME, reason) from error
        if outcome is StreamsOutcome.COMMITTED or said == "committed":
            return StreamsOutcome.COMMITTED
        is_known = self._tables.now_ms - prepared.at_ms <= MAX_STREAM_AGE_MS
        if is_known or said == "void":
            return StreamsOutcome.GONE
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(prepared.at_ms / 1000))
        raise CommitUnknownError(self._table.label, prepared.rows, at, self.address.bq_name)

    def _read(self) -> Held:
        resource = self._tables.get(self.address)
        record = CommitRecord() if resource is None else _record_of(resource)
        self._check_table(record)
        self._held = Held(record, resource)
        return self._held

    def _check_table(self, record: CommitRecord) -> None:
        if record.table and self.table_made() != record.table:
            reason = (
                "the table was deleted or made again since the pipeline wrote to it; its rows are"
                f" not in it. Restore it, or delete {self.address.label} and reset the checkpoint"
            )
            raise TableMismatchError(self._table.label, reason)


class BigQueryPositions:
    """The positions in the record; to read them settles a commit that is under way.

    Args:
        address: of the table.
        pipeline: its name.
        keeper: of an open sink; None: one is made for each question.
    """

    def __init__(
        self, address: TableAddress, pipeline: str, keeper: RecordKeeper | None = None
    ) -> None:
        self._address, self._pipeline, self._keeper = address, pipeline, keeper
        self.uri = f"{NAME}, {record_address(address, pipeline).label}"

    def versions(self, app_ids: Iterable[str]) -> dict[str, int]:
        """Returns the number recorded for each application id.

        Raises:
            SinkError: as :meth:`RecordKeeper.settled`.
            TableMismatchError: as :meth:`RecordKeeper.settled`.
        """
        recorded = self._recorded()
        return {name: recorded[name] for name in app_ids if name in recorded}

    def _recorded(self) -> Mapping[str, int]:
        if self._keeper is not None:
            return self._keeper.settled().record.versions
        tables, streams = Tables(self._address), Streams(self._address)
        try:
            keeper = RecordKeeper(tables, streams, self._address, self._pipeline)
            return keeper.settled().record.versions
        finally:
            tables.close()
            streams.close()

    def restored(self, writer: Mapping[str, object]) -> None:  # noqa: ARG002
        """Returns None: a table that is restored is another one."""
        return


def _parts(record: CommitRecord) -> list[dict[str, Any]]:
    """Returns the columns that hold a record.

    Raises:
        SinkError: if it is too large: with more than a million positions.
    """
    text = base64.b85encode(zlib.compress(msgspec.json.encode(record))).decode()
    parts = [text[at : at + _PART_CHARACTERS] for at in range(0, len(text), _PART_CHARACTERS)]
    if len(parts) > _MAX_PARTS:
        raise SinkError(NAME, f"positions and streams of a batch take {len(text)} characters")
    return [
        {"name": f"part_{number}", "type": "STRING", "mode": "NULLABLE", "description": part}
        for number, part in enumerate(parts)
    ]


def _record_of(resource: Mapping[str, Any]) -> CommitRecord:
    text = "".join(field.get("description") or "" for field in resource["schema"]["fields"])
    return _RECORDS.decode(zlib.decompress(base64.b85decode(text)))
