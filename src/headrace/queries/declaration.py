"""The declaration of standing queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headrace.model.declared import DeclaredValue
from headrace.model.partitioning import partition_of_key

DEFAULT_MAX_TTL = timedelta(hours=1)


@dataclass(frozen=True)
class StandingQueries(DeclaredValue):
    """A set of queries that are registered while pipelines run, and have results by window.

    ========================== ====================================================================
    topic                      records
    ========================== ====================================================================
    ``NAME.queries``           the registered queries, by id; one partition
    ``NAME.matched``           what batches of events add to windows, by query and window
    ``NAME.positions``         positions of pipelines that match events; one partition
    ``NAME.snapshots``         open windows, with the offsets of the records that they include
    ``NAME.ended``             results of ended windows, before they are in order
    ``NAME.results``           the results, by query id, in order
    ``NAME.matched-events``    events that match, of queries with ``MATCHED EVENTS EMIT``
    ``NAME.leases``            leases of instances for partitions; one partition
    ========================== ====================================================================

    Attributes:
        name: name of the set; the names of its topics begin with it.
        partitions: number of partitions of the topics ``NAME.matched``, ``NAME.snapshots``,
            ``NAME.ended``, ``NAME.results`` and ``NAME.matched-events``.
        partitions_per_instance: number of partitions that an instance takes for its life; ``None``
            for all. Instances beyond those that are needed wait to replace one that is lost.
        max_ttl: the longest time, and the default, that a query lives without an update; ``None``
            if queries live until they are cancelled. Without it, the topic of queries is compacted;
            with it, the topic has a retention of twice that time.
    """

    name: str
    partitions: int = 8
    partitions_per_instance: int | None = None
    max_ttl: timedelta | None = DEFAULT_MAX_TTL

    @property
    def queries_topic(self) -> str:
        """Name of the topic with the registered queries."""
        return f"{self.name}.queries"

    @property
    def matched_topic(self) -> str:
        """Name of the topic with what batches of events add to windows."""
        return f"{self.name}.matched"

    @property
    def positions_topic(self) -> str:
        """Name of the topic with the positions of pipelines that match events."""
        return f"{self.name}.positions"

    @property
    def snapshots_topic(self) -> str:
        """Name of the topic with snapshots of open windows."""
        return f"{self.name}.snapshots"

    @property
    def ended_topic(self) -> str:
        """Name of the topic with the results of ended windows, before they are in order."""
        return f"{self.name}.ended"

    @property
    def leases_topic(self) -> str:
        """Name of the topic with the leases of instances."""
        return f"{self.name}.leases"

    @property
    def matched_events_topic(self) -> str:
        """Name of the topic with matched events of queries with ``MATCHED EVENTS EMIT``."""
        return f"{self.name}.matched-events"

    @property
    def results_topic(self) -> str:
        """Name of the topic with results in order."""
        return f"{self.name}.results"

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of all topics of the set."""
        return (
            self.queries_topic,
            self.matched_topic,
            self.positions_topic,
            self.snapshots_topic,
            self.ended_topic,
            self.results_topic,
            self.matched_events_topic,
            self.leases_topic,
        )

    def partition_of(self, key: bytes) -> int:
        """Returns the partition of a record, of those that are declared: instances read no others.

        Args:
            key: key of the record.
        """
        return partition_of_key(key, self.partitions)
