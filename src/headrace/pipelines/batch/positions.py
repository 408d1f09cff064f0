"""A batch is known by its offsets: what the table records of a checkpoint, and what it may add.

Each transaction records, as application versions of Delta, which are part of every snapshot and
survive checkpoints and cleanup of the table's log:

============================================== ============================================
headrace.<pipeline>                            number of the checkpoint
headrace.<pipeline>/reprocess                  number of the last part that was reprocessed
headrace.<pipeline>/<number>                   Spark's batch id
headrace.<pipeline>/<number>/caught-up         of a sink that deletes: ``caught_up_ms`` of the
                                               :class:`SourceOffset` behind the batch
headrace.<pipeline>/<number>/<topic>/<id>/<p>  position of partition p: the next to read; id
                                               is the topic's, another one when it is recreated
============================================== ============================================

The batch id distinguishes batches that have the same offsets: Spark ends windows in batches that
read nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import CheckpointBehindTableError, TableBehindCheckpointError
from headrace.model import TopicPartition
from headrace.pipelines.source.offsets import SourceOffset
from headrace.pipelines.start.checkpoint import PlannedBatch, positions_of
from headrace.sinks.api import PositionStore, RestoredTarget, Transaction


@dataclass(frozen=True)
class Recorded:
    """What a table records of one checkpoint.

    Attributes:
        newest: number of the newest checkpoint that the table knows of the pipeline.
        batch_id: of the last transaction of this checkpoint; None: there was none.
        positions: the next record to read, of each partition.
    """

    newest: int | None
    batch_id: int | None
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckpointIds:
    """The application ids of one checkpoint of a pipeline."""

    pipeline: str
    number: int

    @property
    def newest(self) -> str:
        """Whose version is the number of the newest checkpoint."""
        return f"headrace.{self.pipeline}"

    @property
    def reprocess(self) -> str:
        """Whose version is the number of the last part that was reprocessed."""
        return f"{self.newest}/reprocess"

    @property
    def reprocess_ended(self) -> str:
        """In :attr:`LedgerEntry.held`, the last part that was there before a RESTORE."""
        return f"{self.reprocess}/ended"

    @property
    def batch(self) -> str:
        """Whose version is Spark's batch id."""
        return f"{self.newest}/{self.number}"

    @property
    def caught_up(self) -> str:
        """Whose version is the time at which a sink that deletes had all records."""
        return f"{self.batch}/caught-up"

    @property
    def writer(self) -> dict[str, object]:
        """What the pipeline's transactions say in the table's history."""
        return {"pipeline": self.pipeline}

    def partitions(self, offsets: Mapping[str, SourceOffset]) -> dict[TopicPartition, str]:
        """Returns the ids whose versions are positions, by partition."""
        return {
            TopicPartition(topic, p): f"{self.batch}/{topic}/{offset.topic_id}/{p}"
            for topic, offset in offsets.items()
            for p in offset.partitions
        }

    def caught_up_at(self, offsets: Mapping[str, SourceOffset]) -> dict[str, int]:
        """Returns the version that says when all records had been read, if that matters."""
        times = [offset.caught_up_ms for offset in offsets.values() if offset.caught_up_ms > 0]
        # Of several topics, the one that was caught up longest ago decides which deletes may be
        # missed.
        return {self.caught_up: min(times)} if times else {}

    def check_newest(self, newest: int | None) -> None:
        """Raises CheckpointBehindTableError if the table knows a newer checkpoint."""
        if newest is not None and newest > self.number:
            reason = f"it has rows of checkpoint {newest}, current.json says {self.number}"
            raise CheckpointBehindTableError(self.pipeline, "", "", "", reason)

    def recorded(self, table: PositionStore, offsets: Mapping[str, SourceOffset]) -> Recorded:
        """What ``table`` records of the partitions in ``offsets``."""
        partitions = self.partitions(offsets)
        versions = table.versions([self.newest, self.batch, *partitions.values()])
        positions = {
            partition: versions[name] for partition, name in partitions.items() if name in versions
        }
        return Recorded(versions.get(self.newest), versions.get(self.batch), positions)


def newest_checkpoint(pipeline: str, positions: PositionStore | None) -> int | None:
    """Returns the newest checkpoint of ``pipeline`` that its sink records; None: there is none."""
    if positions is None:
        return None
    name = CheckpointIds(pipeline, 0).newest
    return positions.versions([name]).get(name)


def held_positions(pipeline: str, positions: PositionStore) -> PositionStore:
    """Returns what the sink recorded when it had the rows that it has now.

    A RESTORE takes rows back and leaves what the table records, until ``pipeline`` writes again.
    """
    restored = positions.restored(CheckpointIds(pipeline, 0).writer)
    return positions if restored is None else restored.to


def taken_back(ids: CheckpointIds, positions: PositionStore) -> RestoredTarget | None:
    """Returns what a RESTORE or replacement has taken the checkpoint's rows from; None: none."""
    restored = positions.restored(ids.writer)
    names = (ids.batch, ids.reprocess)
    if restored is None or restored.to.versions(names) == restored.at.versions(names):
        return None
    return restored


def reprocess_command(pipeline: str, times: str = "--from ... --to ...") -> str:
    """Returns the command that reprocesses a time range of ``pipeline``, for messages."""
    return f"`headrace reprocess {pipeline} {times}`"


class TablePositions:
    """Compares the batches of one checkpoint with what its table records.

    The table is read once, with the first batch of a run. From then on a transaction fails if
    another writer has committed.

    Args:
        ids: of the checkpoint.
        table: what the sink records.
        expected_versions: what the first transaction of the checkpoint expects beside its own, by
            application id: :attr:`CurrentCheckpoint.expected_versions`.
    """

    def __init__(
        self,
        ids: CheckpointIds,
        table: PositionStore,
        expected_versions: Mapping[str, int | None] | None = None,
    ) -> None:
        self._ids = ids
        self._table = table
        self._expected_at_first = expected_versions or {}
        self._recorded: Recorded | None = None

    def holds(self, planned: PlannedBatch) -> bool:
        """Whether the table holds the batch; False: it ends just where the batch begins.

        Raises:
            CheckpointBehindTableError: if the table holds more than the checkpoint knows of.
            TableBehindCheckpointError: if the table lacks what came before.
        """
        recorded = self._known(planned)
        # Both: a checkpoint from a backup plans other offsets under a batch id that the table
        # knows.
        if recorded.batch_id == planned.batch_id and _stands_at(recorded, planned.ends, planned):
            return True
        later = recorded.batch_id is not None and recorded.batch_id >= planned.batch_id
        if later or not _stands_at(recorded, planned.starts, planned):
            raise self._out_of_step(recorded, planned.starts, planned)
        return False

    def check_end(self, planned: PlannedBatch) -> None:
        """Checks that the table stands at the end of ``planned``, which Spark has finished.

        Raises:
            CheckpointBehindTableError: if the table holds more than the checkpoint knows of.
            TableBehindCheckpointError: if the table lacks batches.
        """
        recorded = self._known(planned)
        later = recorded.batch_id is not None and recorded.batch_id > planned.batch_id
        if later or not _stands_at(recorded, planned.ends, planned):
            raise self._out_of_step(recorded, planned.ends, planned)

    def are_recorded(self, planned: PlannedBatch) -> bool:
        """Whether the table records positions of the checkpoint of ``planned``."""
        return bool(self._known(planned).positions)

    def know_pipeline(self, planned: PlannedBatch) -> bool:
        """Whether the table records any checkpoint of the pipeline, and may hold rows of it."""
        return self._known(planned).newest is not None

    def transaction(self, planned: PlannedBatch) -> Transaction:
        """What the transaction of a batch records; the first one of a checkpoint, all positions."""
        ids, recorded = self._ids, self._known(planned)
        names = ids.partitions(planned.ends)
        # Only positions that change: a batch of few partitions stays a small commit.
        moved = {
            partition: at
            for partition, at in planned.positions.items()
            if recorded.positions.get(partition) != at
        }
        versions = {
            ids.newest: ids.number,
            ids.batch: planned.batch_id,
            **ids.caught_up_at(planned.ends),
        }
        starts = positions_of(planned.starts)
        begins_elsewhere = recorded.newest != ids.number and not self._expected_at_first
        # What commits before it say of that is not of the rows that follow.
        completeness = {"complete_until": None} if begins_elsewhere else {}
        return Transaction(
            versions | {names[partition]: at for partition, at in moved.items()},
            self._expected(recorded),
            {
                **ids.writer,
                "checkpoint": ids.number,
                "batch": planned.batch_id,
                "offsets": {str(p): [starts.get(p, at), at] for p, at in moved.items()},
                **completeness,
            },
            begins_elsewhere=begins_elsewhere,
        )

    def _expected(self, recorded: Recorded) -> dict[str, int | None]:
        ids = self._ids
        own = {ids.newest: recorded.newest, ids.batch: recorded.batch_id}
        # Until its first commit, this checkpoint fences no driver of the one before.
        return own if recorded.newest == ids.number else {**own, **self._expected_at_first}

    def ended(self, planned: PlannedBatch) -> None:
        """Notes that the table holds the batch now."""
        positions = {**self._known(planned).positions, **planned.positions}
        self._recorded = Recorded(self._ids.number, planned.batch_id, positions)

    def _known(self, planned: PlannedBatch) -> Recorded:
        if self._recorded is None:
            self._recorded = self._ids.recorded(self._table, planned.ends)
            self._ids.check_newest(self._recorded.newest)
            is_own = self._recorded.newest == self._ids.number
            # The start has checked this, and opening the sink after that takes a while.
            if is_own and (restored := taken_back(self._ids, self._table)) is not None:
                raise TableBehindCheckpointError(
                    self._ids.pipeline,
                    *("", "", ""),
                    "a RESTORE or replacement of the table has taken rows from it during the start",
                    in_table=newest_checkpoint(self._ids.pipeline, restored.to) is not None,
                    reprocess=reprocess_command(self._ids.pipeline),
                )
        return self._recorded

    def _out_of_step(
        self, recorded: Recorded, expected: Mapping[str, SourceOffset], planned: PlannedBatch
    ) -> Exception:
        """The error that says which of the two is behind, by the first partition that differs."""
        pipeline, number = self._ids.pipeline, self._ids.number
        for partition in sorted(planned.positions):
            position = _position(expected, partition)
            at = recorded.positions.get(partition)
            if not _same(at, position, _position(planned.initial, partition)):
                facts = (pipeline, str(partition), _fact(position), _fact(at))
                if at is None or (position is not None and at < position):
                    in_table = recorded.newest is not None
                    again = reprocess_command(pipeline)
                    return TableBehindCheckpointError(*facts, in_table=in_table, reprocess=again)
                return CheckpointBehindTableError(*facts)
        reason = (
            f"checkpoint {number} is at batch {planned.batch_id}, the table has its batch "
            f"{recorded.batch_id}"
        )
        return CheckpointBehindTableError(pipeline, "", "", "", reason)


class NoPositions:
    """Positions of a sink that records none: every batch is new to it, also a repeated one."""

    def holds(self, planned: PlannedBatch) -> bool:  # noqa: ARG002
        """Returns False: the sink does not record which batches it has."""
        return False

    def check_end(self, planned: PlannedBatch) -> None:
        """There is nothing that could differ from the checkpoint."""

    def are_recorded(self, planned: PlannedBatch) -> bool:  # noqa: ARG002
        """There is nothing to record."""
        return True

    def know_pipeline(self, planned: PlannedBatch) -> bool:  # noqa: ARG002
        """Returns False: the sink does not record whose rows it has."""
        return False

    def transaction(self, planned: PlannedBatch) -> Transaction:  # noqa: ARG002
        """Records nothing."""
        return Transaction({}, {})

    def ended(self, planned: PlannedBatch) -> None:
        """There is nothing to note."""


def _stands_at(
    recorded: Recorded, offsets: Mapping[str, SourceOffset], planned: PlannedBatch
) -> bool:
    """Whether the table stands at ``offsets`` with every partition of the batch."""
    return all(
        _same(
            recorded.positions.get(partition),
            _position(offsets, partition),
            _position(planned.initial, partition),
        )
        for partition in planned.positions
    )


def _same(recorded: int | None, position: int | None, initial: int | None) -> bool:
    """Whether the two are equal; without a record only where the checkpoint began will do."""
    return recorded == position or (recorded is None and position == initial)


def _position(offsets: Mapping[str, SourceOffset], partition: TopicPartition) -> int | None:
    offset = offsets.get(partition.topic)
    return None if offset is None else offset.partitions.get(partition.partition)


def _fact(offset: int | None) -> int | str:
    return "" if offset is None else offset
