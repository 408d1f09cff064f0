"""The committed position of a partition of events, with the queries that events are matched with.

Both are in one commit, so that the matches that must exist can be found again at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import confluent_kafka
import msgspec

from headrace.queries.emit.rules import NO_QUERIES
from headrace.queries.match.held import RegistryPoint


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
class EmitterPosition:
    """The position of a partition of events: the next event, and what was matched before.

    Attributes:
        offset: the offset of the next event.
        topic_id: id of the topic of events; empty if not known, because another program has
            committed the offset.
        target_id: id of the topic of matched events.
        scan_from: an offset in the topic of matched events; no record of an event from ``offset``
            on is before it.
        instance: the instance that committed the position; empty if none has.
        skipped: number of offsets that Kafka deleted before they were matched, since the first
            start.
        queries: the queries that earlier events are matched with; ``None`` if not known.
        epoch: epoch of a leader that had all events before ``offset``; -1 if not known.
    """

    offset: int
    topic_id: str = ""
    target_id: str = ""
    scan_from: int = 0
    instance: str = ""
    skipped: int = 0
    queries: CommittedQueries | None = None
    epoch: int = -1

    @property
    def matches_nothing(self) -> bool:
        """Whether no query asks for matched events, so that events are skipped."""
        return self.queries is not None and self.queries.hash == NO_QUERIES

    @property
    def metadata(self) -> str:
        """The metadata that is committed with the offset."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def of(cls, committed: confluent_kafka.TopicPartition) -> EmitterPosition:
        """Returns the position that a committed offset and its metadata hold."""
        try:
            position = _METADATA.decode(committed.metadata or "")
        except ValueError:  # another program has committed it
            return cls(committed.offset)
        return replace(position, offset=committed.offset)


_METADATA = msgspec.json.Decoder(EmitterPosition)
