"""The commit state of a pipeline, beside its table: positions, and the pending commit.

It lies in the dataset of the table, in the schema of a table without rows, as descriptions of
columns (``docs/decisions/0038-...`` says why): reading and changing it costs nothing, it is changed
only as it was read (``If-Match``), and it outlives checkpoint and lake.

A batch changes it twice: *prepared* before its streams are committed, with their names, and
*settled* after. What finds a prepared commit completes it and records that.
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
from headrace.sinks.bigquery.connection import NAME, Streams, TableAddress, Tables, retry_for
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


class CommitState(msgspec.Struct, frozen=True):
    """What is kept.

    Attributes:
        versions: by application id, the number recorded with the rows that are in the table.
        prepared: the pending commit; None: there is none.
        table_creation_time: when the table was made, as BigQuery says it.
        writer: of this state; another one each time.
    """

    versions: dict[str, int] = {}
    prepared: Prepared | None = None
    table_creation_time: str = ""
    writer: str = ""


# Made at import: msgspec crashes where several threads are the first to decode a class.
_STATES = msgspec.json.Decoder(CommitState)


def state_address(address: TableAddress, pipeline: str) -> TableAddress:
    """Returns the table that holds the commit state of a pipeline."""
    name = re.sub(r"[^\w-]", "_", f"headrace_{address.table}_{pipeline}")
    digest = hashlib.blake2b(f"{address.table}/{pipeline}".encode(), digest_size=4).hexdigest()
    return replace(address, table=f"{name}_{digest}")


@dataclass(frozen=True)
class StoredState:
    """A commit state as it was read or written.

    Attributes:
        state: what it says.
        resource: the table that holds it, and with it the right to change it; None: there is none.
    """

    state: CommitState
    resource: Mapping[str, Any] | None


class StateStore:
    """Reads and changes the commit state of a pipeline that writes to a table.

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
        self.address = state_address(address, pipeline)
        self._latest: StoredState | None = None

    @property
    def now_ms(self) -> int:
        """BigQuery's time at the last answer: clocks of machines may differ by days."""
        return self._tables.now_ms

    def creation_time(self) -> str:
        """Returns when the table was made, as BigQuery says it; empty: there is none."""
        table = self._tables.get(self._table)
        return "" if table is None else str(table.get("creationTime", ""))

    def settled_state(self) -> StoredState:
        """Returns the state after a pending commit is completed; it is read again after conflicts.

        Raises:
            SinkUnavailableError: if BigQuery does not answer.
            TableMismatchError: if the table was recreated since a pipeline wrote to it.
            CommitUnknownError: if it can't be known whether a batch is in the table.
        """
        stored = self._latest or self._read()
        while stored.state.prepared is not None:
            self.commit_prepared(stored)
            stored = self._latest or self._read()
        return stored

    def replace(
        self, before: StoredState, state: CommitState, *, is_urgent: bool = True
    ) -> StoredState | None:
        """Replaces a state by another one; None: another process has replaced it.

        Args:
            before: the one that was read.
            state: the new one.
            is_urgent: whether it is tried again while BigQuery does not take it.

        Raises:
            SinkUnavailableError: if it is not known which one is stored.
            SinkError: if BigQuery refuses it.
        """
        written = msgspec.structs.replace(state, writer=uuid4().hex)
        self._latest = None
        wait_seconds = connection.COMMIT_WAIT_SECONDS if is_urgent else 0.0
        resource = retry_for(lambda: self._write(before.resource, written), wait_seconds)
        if resource is not None:
            self._latest = StoredState(written, resource)
        elif self._read().state.writer != written.writer:
            return None  # or else it was written, and the answer was lost
        return self._latest

    def commit_prepared(self, stored: StoredState) -> StreamsOutcome:
        """Commits the streams of a prepared commit, and records what became of them.

        Raises:
            SinkUnavailableError: if BigQuery does not answer.
            SinkError: if it does not commit them, and no operator has said that it is not to.
            CommitUnknownError: as :meth:`settled_state`.
        """
        state, prepared = stored.state, stored.state.prepared
        if prepared is None:
            return StreamsOutcome.COMMITTED
        outcome = StreamsOutcome.COMMITTED
        if prepared.streams:
            outcome = self._outcome(stored, prepared)
        versions = state.versions
        if outcome is StreamsOutcome.COMMITTED:
            versions = versions | prepared.versions
        settled = msgspec.structs.replace(state, versions=versions, prepared=None)
        try:
            self.replace(stored, settled, is_urgent=False)
        except SinkError:
            # The outcome holds, recorded or not: what reads the prepared commit comes to the same
            # one. The next change of this driver replaces what is stored, and records it, too.
            self._latest = StoredState(settled, stored.resource)
        return outcome

    def _write(
        self, before: Mapping[str, Any] | None, state: CommitState
    ) -> Mapping[str, Any] | None:
        fields = _parts(state)
        if before is None:
            body = {"description": _DESCRIPTION, "schema": {"fields": fields}}
            return self._tables.insert(self.address, body)
        # Columns stay for ever: parts that are not needed are empty.
        unused = before["schema"]["fields"][len(fields) :]
        fields += [{**field, "description": ""} for field in unused]
        # What an operator has said of a batch holds for that one.
        body = {"schema": {"fields": fields}, "labels": {OUTCOME_LABEL: None}}
        return self._tables.patch(self.address, body, before["etag"])

    def _outcome(self, stored: StoredState, prepared: Prepared) -> StreamsOutcome:
        """Commits streams; what an operator has said counts where BigQuery does not commit them."""
        operator_label = ((stored.resource or {}).get("labels") or {}).get(OUTCOME_LABEL)
        try:
            outcome = commit_streams(self._streams, self._table, prepared.streams)
        except StreamsRefusedError as error:
            if operator_label == "void":
                return StreamsOutcome.GONE
            reason = (
                f"{error.reason}. The next start tries again. To have the {prepared.rows:,} rows"
                " written again, stop each process of the pipeline, and"
                f" `bq update --set_label {OUTCOME_LABEL}:void {self.address.bq_name}`"
            )
            raise SinkError(NAME, reason) from error
        # An operator's word stands in where BigQuery no longer knows the streams.
        if outcome is StreamsOutcome.COMMITTED or operator_label == "committed":
            return StreamsOutcome.COMMITTED
        # Young streams that are unknown were never committed: BigQuery would still know them.
        is_known = self._tables.now_ms - prepared.at_ms <= MAX_STREAM_AGE_MS
        if is_known or operator_label == "void":
            return StreamsOutcome.GONE
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(prepared.at_ms / 1000))
        raise CommitUnknownError(self._table.label, prepared.rows, at, self.address.bq_name)

    def _read(self) -> StoredState:
        resource = self._tables.get(self.address)
        state = CommitState()
        if resource is not None:
            fields = resource["schema"]["fields"]
            text = "".join(field.get("description") or "" for field in fields)
            state = _STATES.decode(zlib.decompress(base64.b85decode(text)))
        if state.table_creation_time and self.creation_time() != state.table_creation_time:
            reason = (
                "the table was deleted or recreated since the pipeline wrote to it; its rows are"
                f" not in it. Restore it, or delete {self.address.label} and reset the checkpoint"
            )
            raise TableMismatchError(self._table.label, reason)
        self._latest = StoredState(state, resource)
        return self._latest


class BigQueryPositions:
    """The positions in the commit state; to read them completes a pending commit.

    Args:
        address: of the table.
        pipeline: its name.
        states: of an open sink; None: one is made for each question.
    """

    def __init__(
        self, address: TableAddress, pipeline: str, states: StateStore | None = None
    ) -> None:
        self._address, self._pipeline, self._states = address, pipeline, states
        self.uri = f"{NAME}, {state_address(address, pipeline).label}"

    def versions(self, app_ids: Iterable[str]) -> dict[str, int]:
        """Returns the number recorded for each application id.

        Raises:
            SinkError: as :meth:`StateStore.settled_state`.
            TableMismatchError: as :meth:`StateStore.settled_state`.
        """
        recorded = self._recorded()
        return {name: recorded[name] for name in app_ids if name in recorded}

    def _recorded(self) -> Mapping[str, int]:
        if self._states is not None:
            return self._states.settled_state().state.versions
        tables, streams = Tables(self._address), Streams(self._address)
        try:
            states = StateStore(tables, streams, self._address, self._pipeline)
            return states.settled_state().state.versions
        finally:
            tables.close()
            streams.close()

    def restored(self, writer: Mapping[str, object]) -> None:  # noqa: ARG002
        """Returns None: a table that is restored is another one."""
        return


def _parts(state: CommitState) -> list[dict[str, Any]]:
    """Returns the columns that hold a state.

    Raises:
        SinkError: if it is too large: with more than a million positions.
    """
    text = base64.b85encode(zlib.compress(msgspec.json.encode(state))).decode()
    parts = [text[at : at + _PART_CHARACTERS] for at in range(0, len(text), _PART_CHARACTERS)]
    if len(parts) > _MAX_PARTS:
        raise SinkError(NAME, f"positions and streams of a batch take {len(text)} characters")
    return [
        {"name": f"part_{number}", "type": "STRING", "mode": "NULLABLE", "description": part}
        for number, part in enumerate(parts)
    ]
