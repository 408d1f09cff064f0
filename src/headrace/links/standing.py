"""How far a link has come, and which of its partitions can't continue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.kafka.group.groups import ConsumerGroup
from headrace.model import TopicPartition


@dataclass(frozen=True)
class LinkedPartition:
    """How far one partition of a source has come.

    Attributes:
        partition: as ``topic/partition``.
        next_offset: of the next record; ``None``: no position is committed.
        end_offset: after the last record of the source; ``None``: no broker reports it.
        lag: offsets to the end; fewer records, where there are markers or gaps. ``None`` where the
            end is not known.
        refused: why it can't continue; empty: it can.
        details: what only its kind of link has, by its name in JSON.
    """

    partition: str
    next_offset: int | None
    end_offset: int | None
    lag: int | None
    refused: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, source: TopicPartition, position: int | None, start: int, end: int | None, why: object
    ) -> LinkedPartition:
        """Returns the standing of a partition.

        Args:
            source: the partition.
            position: the committed offset.
            start: the offset at which it would continue.
            end: the end of the source.
            why: why it can't continue; empty: it can.
        """
        lag = None if end is None else max(end - start, 0)
        return cls(source.path, position, end, lag, str(why))

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, and the details beside them."""
        values = asdict(self)
        details: dict[str, Any] = values.pop("details")
        return values | details


@dataclass(frozen=True)
class Standing:
    """How far a link has come.

    Attributes:
        kind: of the link.
        name: of the link.
        details: what only its kind of link has, such as the other end, by its name in JSON.
        partitions: of the sources.
        group: the consumer group with its members; ``None``: the link has none.
        unknown: why nothing more is known, by its name in JSON; empty: all is.
    """

    kind: str
    name: str
    details: Mapping[str, str]
    partitions: tuple[LinkedPartition, ...]
    group: ConsumerGroup | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Returns why the link or its partitions can't continue, without duplicates."""
        reasons = (*self.unknown.values(), *(partition.refused for partition in self.partitions))
        return tuple(dict.fromkeys(filter(None, reasons)))

    @property
    def lag(self) -> int:
        """Returns the lag of all partitions together."""
        return sum(partition.lag or 0 for partition in self.partitions)

    def to_json(self) -> dict[str, Any]:
        """Returns the standing with its lag."""
        group = {} if self.group is None else {"group": self.group}
        rest = {"partitions": self.partitions, **self.unknown, "lag": self.lag}
        return {self.kind: self.name, **self.details, **group, **rest}
