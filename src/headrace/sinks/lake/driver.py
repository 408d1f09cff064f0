"""The lake's half on the driver: commits of batches, and the table's maintenance beside them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Protocol

from headrace.sinks.api import (
    CommitRejection,
    CommitResult,
    PositionStore,
    SinkDriver,
    Transaction,
)
from headrace.sinks.lake.delta.table import LakeTable
from headrace.sinks.lake.files.data_file import WriteSpec, WrittenFile
from headrace.sinks.lake.unique.filter import UniqueFilter
from headrace.sinks.lake.upkeep.maintenance import DeltaUpkeep, MaintenanceHold, TableCommit, Upkeep
from headrace.sinks.lake.writer import PartitionedWriter
from headrace.storage import files as storage


class OpenTable(Protocol):
    """A table of one format on the driver; :class:`LakeTable` says what its methods do."""

    @property
    def log(self) -> PositionStore:
        """Returns what records positions."""

    @property
    def unique(self) -> UniqueFilter | None:
        """Returns what finds rows that the table has already; None: it may have duplicates."""

    def commit(
        self, files: Sequence[WrittenFile], transaction: Transaction
    ) -> bool | CommitRejection:
        """See :meth:`LakeTable.commit`."""

    def discard(self, files: Sequence[WrittenFile]) -> None:
        """See :meth:`LakeTable.discard`."""

    def version(self) -> int:
        """See :meth:`LakeTable.version`."""


class TableDriver(SinkDriver):
    """An open table of any format.

    Args:
        spec: what its tasks write.
        table: it.
        upkeep: of its format.

    Attributes:
        spec: what its tasks write.
    """

    def __init__(self, spec: WriteSpec, table: OpenTable, upkeep: Upkeep) -> None:
        self.spec = spec
        self._table = table
        self._maintenance = MaintenanceHold(spec, upkeep)
        self.writers = functools.partial(PartitionedWriter, spec)
        self.positions = table.log

    def commit(
        self, pieces: Sequence[str], transaction: Transaction, watermark_us: int
    ) -> CommitResult | CommitRejection:
        """One transaction of the table, which its maintenance is notified of."""
        files = [WrittenFile.from_json(piece) for piece in pieces]
        done = self._table.commit(files, transaction)
        if isinstance(done, CommitRejection):
            return done
        figures: dict[str, int] = {"files_written": len(files)}
        if done:
            if self._table.unique is not None:
                figures |= self._table.unique.committed(files)
            ended = frozenset(
                file.partition for file in files if self.spec.has_ended(file, watermark_us)
            )
            # After the commit and on another thread: its failures are not the batch's. A crash in
            # between costs nothing, since the next start counts small files.
            self._maintenance.committed(TableCommit(self._table.version(), files, ended))
        return CommitResult(done, rows=sum(file.rows for file in files), figures=figures)

    def discard(self, pieces: Sequence[str]) -> None:
        """Deletes the files, but for those that the table holds."""
        self._table.discard([WrittenFile.from_json(piece) for piece in pieces])

    def figures(self) -> Mapping[str, int | str]:
        """What maintenance has done, and which duplicates were dropped lately."""
        done = self._maintenance.progress
        return {
            **(self._table.unique.figures() if self._table.unique is not None else {}),
            "files_merged": done.files_merged,
            "maintenance_failures": done.failures,
            "maintenance_reason": done.reason,
        }

    def close(self, max_wait_seconds: float) -> None:
        """Ends the maintenance of the table, unless other pipelines write to it."""
        self._maintenance.release(max_wait_seconds)


class LakeDriver(TableDriver):
    """An open Delta table.

    Raises:
        TableMismatchError: if a column's type or the partitioning differs from the table's, or the
            table requires more of a writer than headrace does.
        StorageError: if the table's storage can't be used: its bucket is missing, it refuses the
            credentials, or it has no conditional writes.
    """

    def __init__(self, spec: WriteSpec) -> None:
        # First of all: without them two drivers would overwrite the commits of each other.
        storage.require_conditional_writes(spec.root, spec.storage_options)
        table = LakeTable(spec)
        table.check()
        super().__init__(spec, table, DeltaUpkeep(spec))
