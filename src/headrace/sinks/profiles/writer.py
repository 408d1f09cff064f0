"""The halves of an open store of profiles: tasks merge their rows into it, the driver counts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from headrace.sinks.api import (
    CommitResult,
    RejectedRow,
    SinkDriver,
    Transaction,
    WriterFactory,
)
from headrace.sinks.profiles.changes import RowMerger, RowsSpec
from headrace.sinks.profiles.store import ProfileStore

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


class WrittenRows(msgspec.Struct):
    """A piece: how many rows a task wrote, dropped since they had expired, and forgot users by."""

    rows: int = 0
    expired: int = 0
    forget: int = 0


_WRITTEN = msgspec.json.Decoder(WrittenRows)


class ProfilesDriver(SinkDriver):
    """Has nothing to commit: what the tasks wrote is in the store already.

    Args:
        label: of the sink, for log lines.
        opening: opens the store.
        writers: of tasks.
    """

    def __init__(
        self, label: str, opening: Callable[[], ProfileStore], writers: WriterFactory
    ) -> None:
        self.writers = writers
        with closing(opening()) as store:
            store.now_us()
            if warning := store.prepare():
                _log.warning("Profiles can get lost (%s): %s", label, warning)

    def commit(
        self,
        pieces: Sequence[str],
        transaction: Transaction,  # noqa: ARG002
        watermark_us: int,  # noqa: ARG002
    ) -> CommitResult:
        """Adds up what the tasks have written."""
        written = [_WRITTEN.decode(piece) for piece in pieces]
        figures = {
            "profile_expired_rows": sum(piece.expired for piece in written),
            "profile_forget_rows": sum(piece.forget for piece in written),
        }
        return CommitResult(True, sum(piece.rows for piece in written), figures)

    def discard(self, pieces: Sequence[str]) -> None:
        """Takes nothing back: the rows will be there again, and change nothing then."""

    def close(self, max_wait_seconds: float) -> None:
        """No connection is kept between batches."""


class ProfilesWriter:
    """Merges the rows of one task into the store.

    No connection is kept: a task may wait long for its next rows.

    Args:
        opening: opens the store.
        spec: how rows are read.
        task_id: is of no use here.
    """

    def __init__(
        self,
        opening: Callable[[], ProfileStore],
        spec: RowsSpec,
        task_id: str,  # noqa: ARG002
    ) -> None:
        self._opening, self._spec = opening, spec
        self._written = WrittenRows()
        self._has_rows = False

    def write(self, rows: pa.Table) -> list[RejectedRow]:
        """Merges the rows that can be taken; returns the others.

        Raises:
            SinkUnavailableError: if the store does not answer.
            SinkError: if it refuses, such as without memory.
        """
        with closing(self._opening()) as store:
            merged = RowMerger(self._spec, rows, store.now_us()).merged()
            store.merge(merged.changes)
        taken = rows.num_rows - len(merged.rejected)
        self._has_rows = self._has_rows or taken > 0
        self._written.rows += taken - merged.expired
        self._written.expired += merged.expired
        self._written.forget += merged.forget
        return merged.rejected

    def close(self) -> list[str]:
        """Returns the counts, if there were rows."""
        return [msgspec.json.encode(self._written).decode()] if self._has_rows else []

    def abort(self) -> None:
        """What was written stays: it will be there again."""
