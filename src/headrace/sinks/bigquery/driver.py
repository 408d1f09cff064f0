"""The driver's half: a batch is prepared in the record, then its streams are committed at once."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec

from headrace.errors import SinkUnavailableError
from headrace.sinks.api import CommitResult, SinkDriver, Transaction
from headrace.sinks.bigquery import connection
from headrace.sinks.bigquery.connection import NAME, Streams, Tables, patiently
from headrace.sinks.bigquery.record import BigQueryPositions, CommitRecord, Prepared, RecordKeeper
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
        TableMismatchError: if the table can't become what it is to be, or was made again since the
            pipeline wrote to it.
        SinkUnavailableError: if BigQuery does not answer.
        CommitUnknownError: if it can't be known whether a batch is in the table.
    """

    def __init__(self, spec: TableSpec, pipeline: str) -> None:
        self._address = spec.address
        self._tables, self._streams = Tables(spec.address), Streams(spec.address)
        self._keeper = RecordKeeper(self._tables, self._streams, spec.address, pipeline)
        # Before the table is made: one that is gone must not be taken for a new one.
        self._keeper.settled()
        table, _ = TargetTable(self._tables, spec).make()
        self._created_ms = table.created_ms
        self.writers = functools.partial(StreamWriter, spec.address, table.form)
        self.positions = BigQueryPositions(spec.address, pipeline, self._keeper)

    def commit(
        self,
        pieces: Sequence[str],
        transaction: Transaction,
        watermark_us: int,  # noqa: ARG002
    ) -> CommitResult:
        """Prepares the commit of the streams, and commits them.

        Raises:
            SinkUnavailableError: if BigQuery does not answer, the streams have expired, or the
                table was made again since the start.
            SinkError: if the record has other positions than the transaction expects.
        """
        written = [_WRITTEN.decode(piece) for piece in pieces]
        rows = sum(stream.rows for stream in written)
        prepared = Prepared(
            dict(transaction.versions),
            [stream.stream for stream in written],
            rows,
            self._keeper.now_ms,
        )
        held = None
        while held is None:
            before = self._keeper.settled()
            if not transaction.follows(before.record.versions, f"table {self._address.label}"):
                return CommitResult(is_new=False, rows=rows)
            made = patiently(self._keeper.table_made, connection.COMMIT_WAIT_SECONDS)
            if made != self._created_ms:
                # What the next start does depends on whether the pipeline has written rows.
                reason = f"table {self._address.label} was deleted or made again since the start"
                raise SinkUnavailableError(NAME, reason)
            record = CommitRecord(before.record.versions, prepared, self._created_ms)
            held = self._keeper.replace(before, record)
        if self._keeper.settle(held) is StreamsOutcome.GONE:
            raise SinkUnavailableError(NAME, "the streams of the batch expired before their commit")
        return CommitResult(is_new=True, rows=rows)

    def discard(self, pieces: Sequence[str]) -> None:
        """Does nothing: streams can't be deleted, and expire."""

    def close(self, max_wait_seconds: float) -> None:  # noqa: ARG002
        """Closes the connections."""
        self._tables.close()
        self._streams.close()
