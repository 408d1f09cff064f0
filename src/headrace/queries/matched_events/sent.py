"""What was sent of events that match."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headrace.model import TopicPartition
from headrace.transfer.origin import Origin


@dataclass(frozen=True)
class SentOfEvent:
    """An event that was sent, at least to some of the queries that it matches.

    Attributes:
        offset: of the event.
        queries: ids of those that have it.
        target_offset: of the first of its records that was sent.
    """

    offset: int
    queries: Collection[str]
    target_offset: int = 0


@dataclass(frozen=True, slots=True)
class SentEventRecord:
    """A record of the topic of matched events.

    Attributes:
        origin: where the event is.
        query: id of the query that it matches.
        offset: of the record.
    """

    origin: Origin
    query: str
    offset: int

    @property
    def source(self) -> TopicPartition:
        """Returns the partition of the event."""
        return TopicPartition(self.origin.topic, self.origin.partition)
