"""What is committed for a partition of events: how far they were matched, and with which queries.

Both are one commit, so that it can be told at any time which matches there must be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import confluent_kafka
import msgspec

from headrace.queries.match.held import RegistryPoint
from headrace.queries.matched_events.rules import NO_QUERIES


@dataclass(frozen=True, slots=True)
class MatchedQueries:
    """The queries that the events of a partition are matched with, and since when.

    Attributes:
        since: offset of the first event that was matched with all of them, and perhaps with others
            that have ended.
        scan_from: offset in the topic of matched events; what events from ``since`` on have sent
            is from there on.
        hash: of what tells these queries from others.
        registry: where to read them.
        schema: hash of the event class that they are matched by.
    """

    since: int
    scan_from: int
    hash: str
    registry: RegistryPoint
    schema: str = ""


@dataclass(frozen=True, slots=True)
class MatchedPosition:
    """The next event of a partition.

    Attributes:
        offset: of the event.
        topic_id: of the topic of events; empty: not known, as another program has committed it.
        target_id: of the topic of matched events.
        scan_from: offset there; what events from ``offset`` on have sent is from there on.
        instance: that committed it; empty: none did.
        skipped: how many offsets Kafka had deleted before they were looked at, since the first
            start.
        queries: that the events before are matched with; None: not known.
    """

    offset: int
    topic_id: str = ""
    target_id: str = ""
    scan_from: int = 0
    instance: str = ""
    skipped: int = 0
    queries: MatchedQueries | None = None

    @property
    def matches_nothing(self) -> bool:
        """Whether no query asked for matched events: events are passed over."""
        return self.queries is not None and self.queries.hash == NO_QUERIES

    @property
    def metadata(self) -> str:
        """What is committed beside the offset."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def of(cls, committed: confluent_kafka.TopicPartition) -> MatchedPosition:
        """Returns what an offset and its metadata say."""
        try:
            position = _METADATA.decode(committed.metadata or "")
        except ValueError:  # another program has committed it
            return cls(committed.offset)
        return replace(position, offset=committed.offset)


_METADATA = msgspec.json.Decoder(MatchedPosition)
