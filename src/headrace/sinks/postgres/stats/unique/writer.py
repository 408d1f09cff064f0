"""The task's half of a table that counts events once: sums, keys and events are staged."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from headrace.errors import SinkError
from headrace.settings import Secret
from headrace.sinks.api import RejectedRow, TaskWriter, WriterFactory
from headrace.sinks.postgres.connection import connect, translated_errors
from headrace.sinks.postgres.stats.unique.staged_events import StagedEvents
from headrace.sinks.postgres.writer import StagedRows
from headrace.sinks.unique.compared_rows import ComparedRows, RowHashes

if TYPE_CHECKING:
    import pyarrow as pa


class CountedPiece(msgspec.Struct, frozen=True):
    """A piece: that of the sums, and the name by which keys and events are staged, and how many."""

    sums: StagedRows
    events: str
    count: int


# Made at import: msgspec crashes where several threads are the first to decode a class.
PIECE = msgspec.json.Decoder(CountedPiece)
_SUMS = msgspec.json.Decoder(StagedRows)


def counted_piece(sums: str, events: str, count: int) -> CountedPiece:
    """Returns the piece of events whose sums have a piece of their own."""
    return CountedPiece(_SUMS.decode(sums), events, count)


class UniqueStatsWriter:
    """Stages the sums of a task's events, and the keys and values of each.

    Args:
        url: of the database.
        prefix: of the staging tables of one start of a pipeline.
        sums: opens the writer of the sums.
        rule: how events are compared.
        task_id: names the staging tables.
    """

    def __init__(
        self, url: Secret, prefix: str, sums: WriterFactory, rule: ComparedRows, task_id: str
    ) -> None:
        self._url, self._rule = url, rule
        self._sums: TaskWriter = sums(task_id)
        self._name = f"{prefix}{task_id}"
        self._staged = StagedEvents(self._name)
        self._is_made = False
        self._rows = 0

    def write(self, rows: pa.Table) -> list[RejectedRow]:
        """Stages the rows; those without a key, or that the table does not take, are returned.

        Raises:
            SinkUnavailableError: if the server does not answer.
            SinkError: if PostgreSQL refuses all of them.
        """
        hashes = self._rule.hashes(rows)
        detail = f"null or empty in {', '.join(self._rule.by)}, or no {self._rule.event_time}"
        rejected = [
            RejectedRow(index, "missing-value", detail)
            for index in np.flatnonzero(hashes.keys == 0).tolist()
        ]
        indices = np.flatnonzero(hashes.keys)
        if len(indices):
            usable = rows.take(indices) if rejected else rows
            of_sums = self._sums.write(usable)
            rejected += [replace(row, index=int(indices[row.index])) for row in of_sums]
        kept = np.setdiff1d(np.arange(rows.num_rows), [row.index for row in rejected])
        if len(kept):
            self._stage(rows.take(kept), RowHashes(hashes.keys[kept], hashes.values[kept]))
        return sorted(rejected, key=lambda row: row.index)

    def close(self) -> Sequence[str]:
        """Returns the piece, if anything is staged."""
        pieces = (counted_piece(piece, self._name, self._rows) for piece in self._sums.close())
        return [msgspec.json.encode(piece).decode() for piece in pieces]

    def abort(self) -> None:
        """Drops what was staged, if the server answers; else the next start does."""
        self._sums.abort()
        if self._is_made:
            with suppress(SinkError), translated_errors(), connect(self._url) as connection:
                self._staged.drop(connection)

    def _stage(self, rows: pa.Table, hashes: RowHashes) -> None:
        with translated_errors(), connect(self._url) as connection:
            if not self._is_made:
                self._staged.create(connection)
                self._is_made = True
            self._staged.add(connection, rows, hashes, self._rule.event_time, self._rows)
        self._rows += rows.num_rows
