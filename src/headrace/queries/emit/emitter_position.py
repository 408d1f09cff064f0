"""The committed position of a partition of events, with the queries that events are matched with.

Both are in one commit, so that the matches that must exist can be found again at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import confluent_kafka
import msgspec

from headrace.queries.emit.rules import NO_QUERIES
from headrace.queries.match.held import RegistryPoint
from headrace.spark.claimed_query import CommittedPosition


@dataclass(frozen=True, slots=True)
class CommittedQueries:
    """The queries that the events of a partition are matched with, from an offset on.

    Attributes:
        since: the offset of the first event that was matched with all these queries; events may
            have been matched with other queries, too, that are not live any more.
        scan_from: an offset in the topic of matched events; no record of an event from ``since`` on
            is before it.
        hash: hash of the queries' identities.
        registry: the point of the registry at which the queries can be read.
        schema: hash of the event class and event time by which events are read.
    """

    since: int
    scan_from: int
    hash: str
    registry: RegistryPoint
    schema: str = ""


@dataclass(frozen=True, slots=True)
class EmitterPosition(CommittedPosition):
    """The position of a partition of events: the next event, and what was matched before.

    Attributes:
        skipped: number of offsets that Kafka deleted before they were matched, since the first
            start.
        queries: the queries that earlier events are matched with; ``None`` if not known.
    """

    skipped: int = 0
    queries: CommittedQueries | None = None

    @property
    def matches_nothing(self) -> bool:
        """Whether no query asks for matched events, so that events are skipped."""
        return self.queries is not None and self.queries.hash == NO_QUERIES

    @property
    def metadata(self) -> str:
        """The metadata that is committed with the offset."""
        return msgspec.json.encode({name: getattr(self, name) for name in _STORED}).decode()

    @classmethod
    def of(cls, committed: confluent_kafka.TopicPartition) -> EmitterPosition:
        """Returns the position that a committed offset and its metadata hold."""
        try:
            position = _METADATA.decode(committed.metadata or "")
        except ValueError:  # another program has committed it
            return cls(committed.offset)
        return replace(position, offset=committed.offset)


_STORED = (  # in this order: fields of a subclass would be last
    *("offset", "topic_id", "target_id", "scan_from"),
    *("instance", "skipped", "queries", "epoch"),
)
_METADATA = msgspec.json.Decoder(EmitterPosition)
