"""Topics: declared with what they carry and how they are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property

from headrace.model.declared import DeclaredValue
from headrace.model.durations import microseconds, milliseconds
from headrace.model.envelope import Envelope
from headrace.model.event import EventSchema, event_schema
from headrace.model.format import Format, Json, Raw
from headrace.model.partitioning import ByAccount, ByKey, Partitioning

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DEAD_LETTERS_SUFFIX = ".dead"
OFFLINE_FILES_TOPIC = "_headrace.offline-files"
"""Name of the topic with the progress of offline files, whose letters are lines of no topic."""
# Kafka's limit: the name and a partition's number are the name of a directory.
MAX_TOPIC_NAME_LENGTH = 249
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]+")
"""What Kafka allows, of any length; but for "." and ".."."""


@dataclass(frozen=True)
class Topic(DeclaredValue):
    """A Kafka topic and the events in it. Declaring one creates nothing.

    Attributes:
        name: Kafka's name of the topic.
        event: class whose annotations are the fields of the event; ``None`` means raw bytes.
        format: how record values hold the events; by default ``Json()``, or ``Raw()`` where there
            is no event class.
        envelope: how many events lie in each record, see :mod:`headrace.model.envelope`; ``None``:
            each record is one event.
        key: event field whose text is the record key, by its path (``repo.full_name``); ``None``
            means no promised order, or, of a reference of ``enrich``, that other programs give
            records their keys.
        event_id: event field (``str``) that is the same when the same event is sent again, by its
            path.
        derive_event_id: ingest gives an event without one an id made of its bytes and its
            account, instead of refusing it.
        event_time: event field (``datetime`` or ``EpochMillis``) that says when it happened.
        partitions: how many; can grow later, never shrink.
        replication: copies of each partition; must not exceed the number of brokers.
        retention: how long records are kept; ``None`` keeps the broker's default.
        compaction: keep the last record of each key instead of deleting by age. A null value says
            that its key was deleted: it is left out and counted as a tombstone.
        earliest_event_time: events before it are rejected.
        latest_ahead: events further than this ahead of the clock are rejected.
        config: further topic settings by Kafka's own names, as strings.
        spool: while Kafka is unreachable, ingest keeps events on its own disk and answers 202.
        partitioning: which partition ingest sends an event to; by its key where nothing is said.
    """

    name: str
    event: type | None = None
    format: Format | None = None
    envelope: Envelope | None = None
    key: str | None = None
    event_id: str | None = None
    derive_event_id: bool = False
    event_time: str | None = None
    partitions: int = 1
    replication: int = 1
    retention: timedelta | None = None
    compaction: bool = False
    earliest_event_time: datetime = datetime(2000, 1, 1, tzinfo=UTC)
    latest_ahead: timedelta = timedelta(days=1)
    config: Mapping[str, str] = field(default_factory=dict)
    spool: bool = False
    partitioning: Partitioning = field(default_factory=ByKey)

    @cached_property
    def schema(self) -> EventSchema | None:
        """Fields of the event; ``None`` for raw bytes."""
        return None if self.event is None else event_schema(self.event)

    @property
    def is_keyed_elsewhere(self) -> bool:
        """Whether its records have keys that its events do not hold: other programs write it."""
        return self.is_compacted and self.key is None

    @property
    def is_compacted(self) -> bool:
        """Whether Kafka compacts it, as ``compaction`` or ``config`` say."""
        return "compact" in self.cleanup_policy

    @property
    def has_retention(self) -> bool:
        """Whether Kafka deletes what is older than its retention; not where it only compacts."""
        return "delete" in self.cleanup_policy

    @property
    def cleanup_policy(self) -> str:
        """What Kafka does with old records: ``delete``, ``compact`` or both.

        Topics always get it: the brokers' default may be another, and compact what has no key.
        """
        # Asked of declarations that are not checked yet, too.
        config = self.config if isinstance(self.config, Mapping) else {}
        return str(config.get("cleanup.policy", "compact" if self.compaction else "delete"))

    @property
    def is_partitioned_by_key(self) -> bool:
        """Whether the keys of its records choose their partitions."""
        return self.key is not None and isinstance(self.partitioning, ByKey)

    @property
    def needs_account(self) -> bool:
        """Whether its events are placed by an account that they do not hold themselves."""
        return isinstance(self.partitioning, ByAccount) and self.partitioning.account is None

    @property
    def takes_spreads(self) -> bool:
        """Whether producers follow spreads that are applied beside the declared ones."""
        return isinstance(self.partitioning, ByAccount) and self.partitioning.lead is not None

    @property
    def leaves_out_tombstones(self) -> bool:
        """Whether a null value is a tombstone, not a bad record; of raw bytes it is a value."""
        return self.is_compacted and not isinstance(self.record_format, Raw)

    @property
    def record_format(self) -> Format:
        """How record values hold the events, said or not."""
        if self.format is not None:
            return self.format
        return Raw() if self.event is None else Json()

    def event_time_bounds(self, now: float) -> tuple[int, int]:
        """Returns the earliest and the latest event time that is accepted; microseconds since 1970.

        Args:
            now: seconds since 1970.
        """
        earliest = microseconds(self.earliest_event_time - _EPOCH)
        return earliest, int(now * 1e6) + microseconds(self.latest_ahead)

    @property
    def schema_subject(self) -> str:
        """Name under which a schema registry has the schemas of its values."""
        return f"{self.name}-value"

    @property
    def dead_letters(self) -> str:
        """Name of the topic that takes records that can't be processed."""
        return self.name + DEAD_LETTERS_SUFFIX

    @property
    def kafka_config(self) -> dict[str, str]:
        """Topic-level settings as Kafka names them."""
        config = {"cleanup.policy": self.cleanup_policy}
        if self.retention is not None:
            config["retention.ms"] = str(milliseconds(self.retention))
        return config | dict(self.config)
