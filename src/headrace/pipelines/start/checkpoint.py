"""Spark's checkpoint of a query, as far as the end of a batch needs it.

Format of ``offsets/<batch id>`` (Spark's OffsetSeqLog, version 1): a line ``v1``, a line of JSON
with the watermark and settings, then one of each source, ``-`` for a source that has not started.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.errors import SinkError
from headrace.kafka.table.topic_table import TopicPosition
from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.join.offsets import offsets_of
from headrace.pipelines.source.offsets import SourceOffset, ranges_between
from headrace.pipelines.source.planning.initial import initial_path, read_initial
from headrace.pipelines.start.state_operators import SEVERAL_OPERATORS
from headrace.storage import files as storage
from headrace.storage.s3 import is_s3

if TYPE_CHECKING:
    from headrace.settings import Settings

# What Spark renames when it is whole, and the checksum beside it.
_TEMPORARY = re.compile(r"\.{1,2}\d+\.[0-9a-f-]{36}\.tmp(\.crc)?")
FROM_TABLE = "table"
"""Where a checkpoint begins that was reset to its table: its first positions are files in it."""


@dataclass(frozen=True)
class PlannedBatch:
    """The offsets of one batch, by topic.

    Attributes:
        batch_id: Spark's.
        initial: where the checkpoint began.
        starts: where the batch begins.
        ends: where it ends.
        watermark_ms: Spark's, in milliseconds since 1970: operators with state drop rows whose time
            is not after it. It is 0 before a batch has moved it, and where none is set.
    """

    batch_id: int
    initial: Mapping[str, SourceOffset]
    starts: Mapping[str, SourceOffset]
    ends: Mapping[str, SourceOffset]
    watermark_ms: int = 0

    @property
    def ranges(self) -> list[OffsetRange]:
        """What the batch reads, by partition."""
        return [
            range_
            for topic, end in self.ends.items()
            for range_ in ranges_between(self.starts[topic], end)
        ]

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next record to read of every partition, after this batch."""
        return positions_of(self.ends)

    @property
    def epochs(self) -> dict[TopicPartition, int]:
        """By partition, the epoch of the leader that reported its position."""
        return {
            TopicPartition(topic, p): epoch
            for topic, end in self.ends.items()
            for p, epoch in end.epochs.items()
        }

    @property
    def references(self) -> dict[str, TopicPosition]:
        """The positions of its references, by topic, as the source planned last has them."""
        planned = sorted(self.ends.values(), key=lambda end: end.planned_ms)
        return {topic: at for end in planned for topic, at in end.references.items()}

    @property
    def followed(self) -> dict[TopicPartition, int]:
        """The offset before which the batch has the records of each partition of its references."""
        return {
            TopicPartition(topic, p): offset
            for topic, position in self.references.items()
            for p, offset in position.partitions.items()
        }

    @property
    def planned_ms(self) -> int:
        """When the batch was planned, in milliseconds since 1970; unchanged when it is repeated."""
        return max((end.planned_ms for end in self.ends.values()), default=0)

    @property
    def moves(self) -> bool:
        """Whether a position changes; not so where Spark ends windows, or an idle source ticks."""
        return positions_of(self.starts) != self.positions


def positions_of(offsets: Mapping[str, SourceOffset]) -> dict[TopicPartition, int]:
    """Positions by partition."""
    return {
        TopicPartition(topic, p): at
        for topic, offset in offsets.items()
        for p, at in offset.partitions.items()
    }


def checkpoint_root(lake: str, settings: Settings) -> str:
    """Returns the root of the checkpoints of a project's pipelines.

    They lie in the lake, unless the settings name another place. Spark needs Hadoop's client to
    write to S3, which headrace does not bring: for a lake there they lie on the driver's machine.

    Args:
        lake: root URI of the lake.
        settings: of the project.
    """
    if settings.checkpoints:
        return settings.checkpoints
    return str(settings.state) if is_s3(lake) else lake


class CheckpointFolder:
    """All checkpoints a pipeline has had, numbered; ``current.json`` says which one counts.

    A reset begins the next number, so nothing is ever deleted or renamed by it.
    """

    def __init__(self, root: str, pipeline: str) -> None:
        self.uri = f"{root}/_headrace/checkpoints/{pipeline}"
        self._current = f"{self.uri}/current.json"

    def current(self) -> CurrentCheckpoint | None:
        """The checkpoint that counts; ``None`` when the pipeline never ran here."""
        if not storage.exists(self._current):
            return None
        return CurrentCheckpoint(**json.loads(storage.read_bytes(self._current)))

    def checkpoint(self, current: CurrentCheckpoint) -> Checkpoint:
        """Returns the checkpoint that ``current`` names."""
        uri = f"{self.uri}/{current.number}"
        return Checkpoint(uri, current.number, current.expected_versions, current.held)

    def write(self, current: CurrentCheckpoint) -> None:
        """Make it the one that counts."""
        storage.write_bytes_atomic(self._current, json.dumps(asdict(current)).encode())

    def following(self, above: int) -> int:
        """A number that no checkpoint has had, greater than ``above``."""
        current = self.current()
        number = max(above, current.number if current else 0) + 1
        # A crash can leave a folder whose number current.json never had. Spark would take its files
        # for those of the new checkpoint.
        while storage.exists(f"{self.uri}/{number}"):
            number += 1
        return number


@dataclass(frozen=True)
class CurrentCheckpoint:
    """Which checkpoint counts, where it begins, and whether a run has started it.

    Attributes:
        number: its number among those of the pipeline.
        start: where it begins; empty: at the ``start`` of the source.
        begun: whether a run has used it.
        expected_versions: of one that was reset to its table, by application id, what the table
            recorded then. It must record the same at the first commit: what another driver has
            committed since would be read and written again.
        held: what the table records of earlier checkpoints, by application id, as of the version
            that a RESTORE went back to since the last commit; None: there was none.
    """

    number: int
    start: str
    begun: bool
    expected_versions: Mapping[str, int | None] = field(default_factory=dict)
    held: Mapping[str, int] | None = None


class Checkpoint:
    """A query's checkpoint folder, its number, and what :class:`CurrentCheckpoint` says of it."""

    def __init__(
        self,
        uri: str,
        number: int,
        expected_versions: Mapping[str, int | None] | None = None,
        held: Mapping[str, int] | None = None,
    ) -> None:
        self.uri = uri
        self.number = number
        self.expected_versions = expected_versions or {}
        self.held = held

    def exists(self) -> bool:
        """Whether Spark has started this checkpoint."""
        return storage.exists(f"{self.uri}/metadata")

    def has_batches(self) -> bool:
        """Whether Spark has planned a batch, and may have written state."""
        return self._newest("offsets") is not None

    def delete_torn_plan(self) -> None:
        """Deletes what a driver has left that was killed while Spark wrote the first offsets.

        Spark refuses a checkpoint without a batch that has any file in the folder of offsets.
        """
        folder = f"{self.uri}/offsets"
        if not self.has_batches():
            storage.delete_files(folder, filter(_TEMPORARY.fullmatch, storage.list_files(folder)))

    def batch(self, batch_id: int) -> PlannedBatch:
        """Starts and ends of a batch that Spark has planned.

        Raises:
            SinkError: if a file of the checkpoint is torn, of another format, or not there.
        """
        log, ends = self._offsets(batch_id)
        initial = {topic: self._initial(topic) for topic in ends}
        before, starts = self._offsets(batch_id - 1) if batch_id else ({}, {})
        # Spark compares rows with the watermark of the batch before, unless its settings say that a
        # query has one operator with state.
        is_only_one = log.get("conf", {}).get(SEVERAL_OPERATORS) == "false"
        watermark_ms = (log if is_only_one else before).get("batchWatermarkMs", 0)
        return PlannedBatch(batch_id, initial, initial | starts, ends, watermark_ms)

    def last_planned(self) -> tuple[PlannedBatch | None, bool]:
        """Returns the newest batch, and whether it has ended: if not, the next run repeats it."""
        planned, done = self._newest("offsets"), self._newest("commits")
        return None if planned is None else self.batch(planned), planned == done

    def last_ended(self) -> int:
        """Returns the id of the last batch whose end Spark has noted; -1: of none."""
        newest = self._newest("commits")
        return -1 if newest is None else newest

    def _newest(self, folder: str) -> int | None:
        # Beside the batches Spark has checksums and temporary files, which a crash leaves behind.
        names = storage.list_files(f"{self.uri}/{folder}")
        return max((int(name) for name in names if name.isdigit()), default=None)

    def _initial(self, topic: str) -> SourceOffset:
        initial = read_initial(self.uri, topic)
        if initial is None:
            raise SinkError(initial_path(self.uri, topic), "this file of the checkpoint is missing")
        return initial

    def _offsets(self, batch_id: int) -> tuple[dict[str, Any], dict[str, SourceOffset]]:
        """Returns Spark's watermark and settings of a batch, and where it ends."""
        path = f"{self.uri}/offsets/{batch_id}"
        try:
            lines = storage.read_bytes(path).decode().splitlines()
        except FileNotFoundError:
            raise SinkError(path, "this file of the checkpoint is missing") from None
        # A file can be torn where a rename is not atomic, and another Spark may write another
        # version.
        if not lines or lines[0] != "v1":
            raise SinkError(path, "Spark's offset log is torn or not of version 1")
        sources = [json.loads(line) for line in lines[2:] if line != "-"]
        ends = {offset.topic: offset for stored in sources for offset in offsets_of(stored)}
        return json.loads(lines[1]), ends
