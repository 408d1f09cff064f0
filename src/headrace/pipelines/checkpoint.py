"""Spark's checkpoint of a query, as far as the end of a batch needs it.

Format of ``offsets/<batch id>`` (Spark's OffsetSeqLog, version 1): a line ``v1``, a line of
settings, then one line of JSON a source, ``-`` for a source that has not begun.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from headrace.errors import SinkError
from headrace.model import OffsetRange, Start, TopicPartition
from headrace.pipelines.source.offsets import SourceOffset, ranges_between
from headrace.pipelines.source.planner import initial_path
from headrace.sinks import storage


@dataclass(frozen=True)
class PlannedBatch:
    """The offsets of one batch: where each source began and ended."""

    starts: Mapping[str, SourceOffset]
    ends: Mapping[str, SourceOffset]

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
        return {
            TopicPartition(topic, p): offset
            for topic, end in self.ends.items()
            for p, offset in end.partitions.items()
        }

    @property
    def epochs(self) -> dict[TopicPartition, int]:
        """By partition, the epoch of the leader that told its position."""
        return {
            TopicPartition(topic, p): epoch
            for topic, end in self.ends.items()
            for p, epoch in end.epochs.items()
        }


class CheckpointFolder:
    """All checkpoints a pipeline has had, numbered; ``current.json`` says which one counts.

    A reset begins the next number, so nothing is ever deleted or renamed by it.
    """

    def __init__(self, lake: str, pipeline: str) -> None:
        self.uri = f"{lake}/_headrace/checkpoints/{pipeline}"
        self._current = f"{self.uri}/current.json"

    def current(self) -> CurrentCheckpoint | None:
        """The checkpoint that counts; ``None`` when the pipeline never ran here."""
        if not storage.exists(self._current):
            return None
        return CurrentCheckpoint(**json.loads(storage.read_bytes(self._current)))

    def checkpoint(self, current: CurrentCheckpoint) -> Checkpoint:
        """Its folder."""
        return Checkpoint(f"{self.uri}/{current.number}")

    def write(self, current: CurrentCheckpoint) -> None:
        """Make it the one that counts."""
        storage.write_bytes_atomic(self._current, json.dumps(asdict(current)).encode())

    def reset(self, start: Start) -> CurrentCheckpoint:
        """Begin a new checkpoint at ``start`` with the next run."""
        found = self.current()
        following = CurrentCheckpoint(found.number + 1 if found else 1, start.value, begun=False)
        self.write(following)
        return following


@dataclass(frozen=True)
class CurrentCheckpoint:
    """Which checkpoint counts, where it begins, and whether a run has begun it."""

    number: int
    start: str
    begun: bool


class Checkpoint:
    """A query's checkpoint folder."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def exists(self) -> bool:
        """Whether Spark has begun this checkpoint."""
        return storage.exists(f"{self.uri}/metadata")

    def query_id(self) -> str:
        """Spark's id of the query: born and lost with the checkpoint."""
        found = json.loads(storage.read_bytes(f"{self.uri}/metadata"))
        return str(found["id"])

    def batch(self, batch_id: int) -> PlannedBatch:
        """Starts and ends of a batch that Spark has planned.

        Raises:
            SinkError: the checkpoint's file is torn or of another format.
        """
        ends = self._offsets(batch_id)
        starts = self._offsets(batch_id - 1) if batch_id else {}
        for topic in ends.keys() - starts.keys():
            found = json.loads(storage.read_bytes(initial_path(self.uri, topic)))
            starts[topic] = SourceOffset.from_json(found)
        return PlannedBatch(starts, ends)

    def _offsets(self, batch_id: int) -> dict[str, SourceOffset]:
        path = f"{self.uri}/offsets/{batch_id}"
        lines = storage.read_bytes(path).decode().splitlines()
        if not lines or lines[0] != "v1":
            raise SinkError(path, "Spark's offset log is torn or not of version 1")
        found = [SourceOffset.from_json(json.loads(line)) for line in lines[2:] if line != "-"]
        return {offset.topic: offset for offset in found}
