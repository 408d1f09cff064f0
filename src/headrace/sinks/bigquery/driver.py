"""The driver's half: the commit of a batch is prepared, then its streams are committed at once."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec

from headrace.errors import SinkUnavailableError
from headrace.sinks.api import CommitResult, SinkDriver, Transaction
from headrace.sinks.bigquery import connection
from headrace.sinks.bigquery.connection import NAME, Streams, Tables, retry_for
from headrace.sinks.bigquery.state import BigQueryPositions, CommitState, Prepared, StateStore
from headrace.sinks.bigquery.streams import StreamsOutcome
from headrace.sinks.bigquery.table import TableSpec, TargetTable
from headrace.sinks.bigquery.writer import StreamWriter, WrittenStream

# Made at import: msgspec crashes where several threads are the first to decode a class.
_WRITTEN = msgspec.json.Decoder(WrittenStream)


class BigQueryDriver(SinkDriver):
    """An open table.

    Args:
        spec: the table.
        pipeline: its name.

    Raises:
        TableMismatchError: if the table can't become what it must be, or was recreated since the
            pipeline wrote to it.
        SinkUnavailableError: if BigQuery does not answer.
        CommitUnknownError: if it can't be known whether a batch is in the table.
    """

    def __init__(self, spec: TableSpec, pipeline: str) -> None:
        self._address = spec.address
        self._tables, self._streams = Tables(spec.address), Streams(spec.address)
        self._states = StateStore(self._tables, self._streams, spec.address, pipeline)
        # Before the table is made: one that was deleted must not be taken for a new one.
        self._states.settled_state()
        table, _ = TargetTable(self._tables, spec).make()
        self._creation_time = table.creation_time
        self.writers = functools.partial(StreamWriter, spec.address, table.form)
        self.positions = BigQueryPositions(spec.address, pipeline, self._states)

    def commit(
        self,
        pieces: Sequence[str],
        transaction: Transaction,
        watermark_us: int,  # noqa: ARG002
    ) -> CommitResult:
        """Prepares the commit of the streams, and commits them.

        Raises:
            SinkUnavailableError: if BigQuery does not answer, the streams have expired, or the
                table was recreated since the start.
            SinkError: if the commit state has other positions than the transaction expects.
        """
        written = [_WRITTEN.decode(piece) for piece in pieces]
        rows = sum(stream.rows for stream in written)
        prepared = Prepared(
            dict(transaction.versions),
            [stream.stream for stream in written],
            rows,
            self._states.now_ms,
        )
        stored = None
        while stored is None:
            before = self._states.settled_state()
            if not transaction.follows(before.state.versions, f"table {self._address.label}"):
                return CommitResult(is_new=False, rows=rows)
            made = retry_for(self._states.creation_time, connection.COMMIT_WAIT_SECONDS)
            if made != self._creation_time:
                # What the next start does depends on whether the pipeline has written rows.
                reason = f"table {self._address.label} was deleted or recreated since the start"
                raise SinkUnavailableError(NAME, reason)
            state = CommitState(before.state.versions, prepared, self._creation_time)
            stored = self._states.replace(before, state)
        if self._states.commit_prepared(stored) is StreamsOutcome.GONE:
            raise SinkUnavailableError(NAME, "the streams of the batch expired before their commit")
        return CommitResult(is_new=True, rows=rows)

    def discard(self, pieces: Sequence[str]) -> None:
        """Does nothing: streams can't be deleted, and expire."""

    def close(self, max_wait_seconds: float) -> None:  # noqa: ARG002
        """Closes the connections."""
        self._tables.close()
        self._streams.close()
