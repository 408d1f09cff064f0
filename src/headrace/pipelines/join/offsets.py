"""Where a join of two topics stands, as Spark keeps it in the checkpoint.

One JSON object with the offsets of both topics (:mod:`headrace.pipelines.source.offsets`), and by
partition the times that a batch decides by::

    {"later": {...}, "earlier": {...}, "clock_us": {"0": 1763999990000000},
     "horizon_us": {"0": 1763996390000000}, "moved_ms": {"clicks/0": 1764000000000}}

They are in the checkpoint, so a batch that is repeated decides as it did before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

from headrace.pipelines.source.offsets import SourceOffset


@dataclass(frozen=True)
class JoinPosition:
    """The place at which a partition of a join stands, at the start or at the end of a batch.

    Attributes:
        earlier: next offset of the topic whose events come first.
        later: next offset of the other topic.
        clock_us: event time up to which the earlier topic has been read.
        horizon_us: earlier events before it are deleted: no later one can match them any more.
    """

    earlier: int
    later: int
    clock_us: int
    horizon_us: int

    @property
    def file(self) -> str:
        """Name of the state's file."""
        return "state-" + "-".join(f"{number:020d}" for number in astuple(self)) + ".msgpack"


@dataclass(frozen=True)
class JoinOffset:
    """Position in every partition of both topics.

    Attributes:
        later: position in the topic whose events refer to earlier ones.
        earlier: position in the topic whose events are referred to.
        clock_us: by partition, the time that the earlier topic has passed.
        horizon_us: by partition, the time before which earlier events are forgotten.
        moved_ms: by topic and partition (``clicks/0``), when a batch last took records of it.
    """

    later: SourceOffset
    earlier: SourceOffset
    clock_us: Mapping[int, int] = field(default_factory=dict)
    horizon_us: Mapping[int, int] = field(default_factory=dict)
    moved_ms: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the offset as Spark keeps it in the checkpoint."""
        return {
            "later": self.later.to_json(),
            "earlier": self.earlier.to_json(),
            "clock_us": {str(p): us for p, us in sorted(self.clock_us.items())},
            "horizon_us": {str(p): us for p, us in sorted(self.horizon_us.items())},
            "moved_ms": dict(sorted(self.moved_ms.items())),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> JoinOffset:
        """Reads what :meth:`to_json` wrote."""
        return cls(
            SourceOffset.from_json(stored["later"]),
            SourceOffset.from_json(stored["earlier"]),
            {int(p): int(us) for p, us in stored["clock_us"].items()},
            {int(p): int(us) for p, us in stored["horizon_us"].items()},
            {place: int(ms) for place, ms in stored["moved_ms"].items()},
        )

    def position(self, partition: int) -> JoinPosition:
        """Returns where a partition stands; one that is not known yet stands at 0."""
        return JoinPosition(
            self.earlier.partitions.get(partition, 0),
            self.later.partitions.get(partition, 0),
            self.clock_us.get(partition, 0),
            self.horizon_us.get(partition, 0),
        )


def offsets_of(stored: Mapping[str, Any]) -> tuple[SourceOffset, ...]:
    """Returns the offsets of the topics in one line of Spark's offset log."""
    if "later" not in stored:
        return (SourceOffset.from_json(stored),)
    join = JoinOffset.from_json(stored)
    return join.later, join.earlier
