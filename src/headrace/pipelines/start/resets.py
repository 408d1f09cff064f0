"""A new checkpoint at other positions: the next run starts it, numbered above all before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.errors import NothingCommittedError, RetentionPassedError
from headrace.kafka.read.cluster import Cluster, LivePositions
from headrace.model import Start
from headrace.pipelines.batch.positions import CheckpointIds, held_positions, newest_checkpoint
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.ledger.folder import LedgerFolder
from headrace.pipelines.source.offsets import NOTHING_READ, SourceOffset
from headrace.pipelines.source.planning.initial import write_initial
from headrace.pipelines.start.checkpoint import (
    FROM_TABLE,
    CheckpointFolder,
    CurrentCheckpoint,
    positions_of,
)
from headrace.runtime.clock import now_in_ms
from headrace.sinks.api import PositionStore, SinkDriver, Transaction


@dataclass(frozen=True)
class Resets:
    """Resets of one pipeline, which must not run meanwhile. They delete nothing.

    Attributes:
        pipeline: whose checkpoint it is.
        folder: its checkpoints.
        positions: what its sink records of it; None: nothing.
        cluster: where its topics are.
        side_positions: what the side table of late events records of it; None: nothing.
        ledger: entries of its batches, if there may be any.
    """

    pipeline: Pipeline
    folder: CheckpointFolder
    positions: PositionStore | None
    cluster: Cluster
    side_positions: PositionStore | None = None
    ledger: LedgerFolder | None = None

    def to_start(self, start: Start) -> CurrentCheckpoint:
        """Begins at what the topics or the group's committed offsets say.

        Raises:
            NothingCommittedError: if the group has no offsets to begin at.
        """
        if start is Start.COMMITTED:
            group = self.pipeline.consumer_group
            for source in self.pipeline.sources:
                if not self.cluster.committed(group, source.topic.name):
                    reason = f"consumer group {group} has committed nothing of {source.topic.name}"
                    raise NothingCommittedError(self.pipeline.name, reason)
        return self._new_checkpoint(self.following(), start.value)

    def to_table(self, *, accept_loss: bool) -> CurrentCheckpoint:
        """Begins where the table stands: what it has not, and nothing that it has.

        A driver that still runs elsewhere is fenced by the first commit of the new checkpoint, as
        a reset does not write to the table. If it commits before that, the new checkpoint is
        refused: its positions are no longer those of the table.

        Args:
            accept_loss: begin at the earliest record where retention has passed that place.

        Raises:
            NothingCommittedError: if the table records no place.
            RetentionPassedError: if records after that place were deleted.
        """
        if self.positions is None:
            reason = f"its sink, {self.pipeline.sink.kind}, records no offsets"
            raise NothingCommittedError(self.pipeline.name, reason)
        expected = self._last_commit(self.positions)
        held = held_positions(self.pipeline.name, self.positions)
        starts = self._start_offsets(held, accept_loss=accept_loss)
        whole = []
        for offset in starts:
            # Partitions that the topic has got since; a start may refuse them.
            added = dict.fromkeys(self.cluster.live(offset.topic).latest, 0)
            whole.append(replace(offset, partitions={**added, **offset.partitions}))
        return self._checkpoint_at(whole, self.following(), expected)

    def take_over(self, number: int, sink: SinkDriver) -> CurrentCheckpoint:
        """Begins where the sink stands, and fences every driver that started before.

        The positions are recorded again, for the new checkpoint, in a transaction that expects
        that nothing was committed since they were read. After it the commits of other drivers find
        a newer checkpoint than theirs and fail; so what was read is where the sink stands for good.
        A crash after it is harmless: the next start takes over from what it recorded.

        Args:
            number: of the new checkpoint.
            sink: open for the pipeline.

        Raises:
            NothingCommittedError: if the sink records no positions of a topic: the topic was
                recreated, or the pipeline did not read it before.
            RetentionPassedError: if records after the positions were deleted.
            SinkError: if another driver has committed meanwhile.
        """
        if self.positions is None:
            raise NothingCommittedError(self.pipeline.name, "its sink records no offsets")
        expected = self._last_commit(self.positions)
        starts = self._start_offsets(self.positions, accept_loss=False)
        offsets = {offset.topic: offset for offset in starts}
        new = CheckpointIds(self.pipeline.name, number)
        names, places = new.partitions(offsets), positions_of(offsets)
        versions = {new.newest: number, **{name: places[at] for at, name in names.items()}}
        versions |= new.caught_up_at(offsets)
        before = expected[new.newest]
        metadata = {**new.writer, "checkpoint": number, "taken_over_from": before}
        sink.commit((), Transaction(versions, expected, metadata), 0)
        return self._checkpoint_at(starts, number)

    def _last_commit(self, positions: PositionStore) -> dict[str, int | None]:
        """Returns by which application ids and versions the last commit of the pipeline is known.

        Called before its positions are read: a commit between the two is then noticed.
        """
        newest = newest_checkpoint(self.pipeline.name, positions)
        ids = CheckpointIds(self.pipeline.name, newest or 0)
        return {ids.newest: newest, ids.batch: positions.versions([ids.batch]).get(ids.batch)}

    def _start_offsets(self, store: PositionStore, *, accept_loss: bool) -> list[SourceOffset]:
        offsets = self._recorded(store)
        live = {offset.topic: self.cluster.live(offset.topic) for offset in offsets}
        return [
            self._still_there(offset, live[offset.topic], accept_loss=accept_loss)
            for offset in offsets
        ]

    def _checkpoint_at(
        self,
        starts: list[SourceOffset],
        number: int,
        expected: Mapping[str, int | None] | None = None,
    ) -> CurrentCheckpoint:
        uri = self.folder.checkpoint(CurrentCheckpoint(number, FROM_TABLE, begun=False)).uri
        # Before current.json names the checkpoint: a crash in between leaves a folder that none
        # uses.
        for offset in starts:
            write_initial(uri, offset)
        return self._new_checkpoint(number, FROM_TABLE, expected)

    def _new_checkpoint(
        self, number: int, start: str, expected: Mapping[str, int | None] | None = None
    ) -> CurrentCheckpoint:
        current = CurrentCheckpoint(
            number, start, begun=False, expected_versions=expected or {}, held=self.held()
        )
        self.folder.write(current)
        return current

    def held(self) -> dict[str, int] | None:
        """Returns what the table records as of the version that a RESTORE went back to."""
        ids = CheckpointIds(self.pipeline.name, 0)
        restored = None if self.positions is None else self.positions.restored(ids.writer)
        if restored is None:
            return None
        topics = [source.topic.name for source in self.pipeline.sources]
        live = {topic: self.cluster.live(topic) for topic in topics}
        offsets = {t: SourceOffset(t, at.topic_id, at.latest, 0) for t, at in live.items()}
        names = [ids.reprocess]
        for number in range(1, (newest_checkpoint(self.pipeline.name, restored.to) or 0) + 1):
            checkpoint = CheckpointIds(self.pipeline.name, number)
            names += [checkpoint.batch, *checkpoint.partitions(offsets).values()]
        last = restored.at.versions([ids.reprocess]).get(ids.reprocess, 0)
        return {**restored.to.versions(names), ids.reprocess_ended: last}

    def following(self) -> int:
        """Returns a number that no checkpoint of the pipeline has had.

        It is above what both tables know: an older number would be refused by either of them. And
        above what the ledger knows: its entries would be taken for those of other batches.
        """
        stores = (self.positions, self.side_positions)
        newest = [newest_checkpoint(self.pipeline.name, store) or 0 for store in stores]
        spans = () if self.ledger is None else self.ledger.spans()
        return self.folder.following(max(*newest, *(span.checkpoint for span in spans)))

    def _recorded(self, store: PositionStore) -> list[SourceOffset]:
        """Returns the position of each topic. A topic that was recreated has none."""
        number = newest_checkpoint(self.pipeline.name, store)
        if number is None:
            reason = f"{store.uri} records no offsets of it"
            raise NothingCommittedError(self.pipeline.name, reason)
        ids = CheckpointIds(self.pipeline.name, number)
        return [self._offset(ids, store, source.topic.name) for source in self.pipeline.sources]

    def _offset(self, ids: CheckpointIds, store: PositionStore, topic: str) -> SourceOffset:
        live = self.cluster.live(topic)
        latest = SourceOffset(topic, live.topic_id, live.latest, now_in_ms())
        recorded = ids.recorded(store, {topic: latest}).positions
        if not recorded:
            reason = f"{store.uri} records no offsets of {topic}, id {live.topic_id}"
            raise NothingCommittedError(self.pipeline.name, reason)
        positions = {partition.partition: at for partition, at in recorded.items()}
        # Only epochs that the group committed with these positions show whether a log was
        # truncated since.
        committed = self.cluster.committed(self.pipeline.consumer_group, topic)
        return replace(
            latest,
            partitions=positions,
            epochs={
                p: seen.epoch
                for p, seen in committed.items()
                if seen.offset == positions.get(p) and seen.epoch >= 0
            },
            caught_up_ms=store.versions([ids.caught_up]).get(ids.caught_up, 0),
        )

    def _still_there(
        self, offset: SourceOffset, live: LivePositions, *, accept_loss: bool
    ) -> SourceOffset:
        added = {p: 0 for p, earliest in live.earliest.items() if earliest}  # unless recorded
        positions = {**added, **offset.partitions}
        starts = {p: max(at, live.earliest[p]) for p, at in positions.items()}
        for p, at in positions.items():
            if starts[p] > at and not accept_loss:
                facts = (offset.topic, p, at, starts[p], self.pipeline.name)
                raise RetentionPassedError(*facts)
        caught_up_ms = NOTHING_READ if accept_loss else offset.caught_up_ms
        return replace(offset, partitions=starts, caught_up_ms=caught_up_ms)
