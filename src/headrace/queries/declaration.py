"""The declaration of standing queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

DEFAULT_MAX_TTL = timedelta(hours=1)


@dataclass(frozen=True)
class StandingQueries:
    """Queries that are registered while everything runs, and answered for each window.

    ========================== ====================================================================
    topic                      records
    ========================== ====================================================================
    ``NAME.queries``           the registered queries, by id; one partition
    ``NAME.matched``           what batches of events add to windows, by query and window
    ``NAME.positions``         how far pipelines have matched events, by pipeline; one partition
    ``NAME.snapshots``         open windows, with the offsets up to which they have been added
    ``NAME.ended``             results of closed windows, before they are in order
    ``NAME.results``           the results, by query id, in order
    ``NAME.matched-events``    events that match, of queries with ``MATCHED EVENTS EMIT``
    ``NAME.leases``            which instance has which partitions; one partition
    ========================== ====================================================================

    Attributes:
        name: of them all; topics begin with it.
        partitions: of the matched topic, the snapshots, the ended windows, the results and the
            matched events.
        partitions_per_instance: how many of them an instance takes, for life; ``None``: all. With
            more instances than that needs, the others wait to take the place of one that is lost.
        max_ttl: how long a query lives if it is not updated, at most and by default; ``None``:
            until it is cancelled. Then the topic of queries is compacted; else it has a retention
            of twice that time.
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
        """Name of the topic with how far pipelines have matched events."""
        return f"{self.name}.positions"

    @property
    def snapshots_topic(self) -> str:
        """Name of the topic with windows that have not ended."""
        return f"{self.name}.snapshots"

    @property
    def ended_topic(self) -> str:
        """Name of the topic with ended windows."""
        return f"{self.name}.ended"

    @property
    def leases_topic(self) -> str:
        """Name of the topic with the leases of instances."""
        return f"{self.name}.leases"

    @property
    def matched_events_topic(self) -> str:
        """Name of the topic with the events that match, of queries that ask for them."""
        return f"{self.name}.matched-events"

    @property
    def results_topic(self) -> str:
        """Name of the topic with results."""
        return f"{self.name}.results"

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of all of its topics."""
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
