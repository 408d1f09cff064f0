"""The status of an instance that answers standing queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

from headrace.events.times import TimeMs
from headrace.metrics import Metric
from headrace.service.figures import Derived, counter, derived_gauge, gauge
from headrace.service.status import InstanceStatus, State

if TYPE_CHECKING:
    from headrace.runtime.prometheus import Sample

_TOPIC_METRICS = (
    Metric(
        "behind_seconds",
        "s",
        "how far the time of the topic's events is behind the clock; below 0: ahead of it",
        "rising: events are late, or the pipeline that matches them stands still",
    ),
)


@dataclass(frozen=True)
class QueryInstanceStatus(InstanceStatus):
    """Counts since an instance started, and its state. Names are those of the metrics.

    Attributes:
        state: state of the instance; a spare is waiting.
        owned: numbers of the partitions that it has.
        uncovered: numbers of the partitions that no instance has.
        late: late events, by query.
        unbalanced: number of missing and surplus matches by topic, as of the last snapshots.
        event_ms: event clock by topic, in milliseconds since 1970.
        faulty: queries whose records can't be added up, with the reason.
    """

    records: int = counter(
        "records",
        "matched records that were added up",
        "standing still while events come: see the state, and the pipelines of `MatchQueries`",
    )
    results: int = counter(
        "results",
        "results that were written to the topic of results",
        "standing still while `records` rises: `behind_seconds` says how far event time is",
    )
    owned: tuple[int, ...] = ()
    uncovered: tuple[int, ...] = ()
    late: Mapping[str, int] = field(default_factory=dict)
    unbalanced: Mapping[str, int] = field(default_factory=dict)
    event_ms: Mapping[str, TimeMs] = field(default_factory=dict)
    faulty: Mapping[str, str] = field(default_factory=dict)

    kind: ClassVar[str] = "queries"
    folder: ClassVar[str] = "queries"
    states: ClassVar = (State.RUNNING, State.WAITING, State.STOPPED, State.FAILED)
    part_metrics: ClassVar = {"topic": _TOPIC_METRICS}

    @derived_gauge(
        "events",
        "events of its partitions that came for windows that had ended, of all queries; "
        "it survives restarts",
        "rising: `ALLOWED LATENESS` of the queries is too short, or a producer is behind",
    )
    def late_events(self) -> int:
        """Returns how many events came for windows that had ended."""
        return sum(self.late.values())

    @derived_gauge(
        "events",
        "matches of its partitions that are missing or too many, by the counts that it "
        "has written last, at least every 5 s",
        "above 0: `headrace reconcile` says in which partitions and at which hop",
    )
    def unbalanced_events(self) -> int:
        """Returns the number of missing and surplus matches."""
        return sum(self.unbalanced.values())

    windows: int = gauge(
        "windows",
        "windows that have not ended",
        "rising without end: event time stands still, or queries have too many groups",
    )

    @derived_gauge(
        "partitions",
        "partitions that it has",
        "0: it is a spare, or it waits for the brokers, as its `reason` says",
    )
    def partitions(self) -> int:
        """Returns how many partitions the instance has."""
        return len(self.owned)

    @derived_gauge(
        "partitions",
        "partitions that no instance has, as this one sees it",
        "above 0: start more instances; `headrace query instances` shows which are missing",
    )
    def uncovered_partitions(self) -> int:
        """Returns how many partitions no instance has."""
        return len(self.uncovered)

    @derived_gauge(
        "queries",
        "queries whose records can't be added up",
        "above 0: `faulty` in `headrace status --json` has the reasons; restart "
        "instances after an event class has changed",
    )
    def faulty_queries(self) -> int:
        """Returns how many queries have records that can't be added up."""
        return len(self.faulty)

    @Derived
    def behind_seconds(self) -> dict[str, float]:
        """Returns by how much event clocks lag behind real time, by topic; negative if ahead."""
        return {
            topic: (self.updated_ms - event_ms) / 1000 for topic, event_ms in self.event_ms.items()
        }

    def samples(self, part: str, metric: str) -> Iterator[Sample]:  # noqa: ARG002
        """Returns the values of a metric of topics, without those whose event clock is unknown."""
        for topic, value in sorted(getattr(self, metric).items()):
            yield {"topic": topic}, value

    def ended(self, state: State, reason: str = "") -> Self:
        """Returns the status of the instance that has ended now, and left its partitions."""
        return replace(super().ended(state, reason), owned=())

    def beside(self, others: Sequence[Self]) -> Self:
        """Returns the status; if the instance failed and another has run since, as it is left.

        Its partitions are those of others by then, with all that it knew of them.
        """
        has_successor = any(
            other.name == self.name and other.updated_ms > self.updated_ms for other in others
        )
        if self.state is not State.FAILED or not has_successor:
            return self
        return type(self)(
            self.name,
            self.state,
            self.reason,
            self.updated_ms,
            self.instance,
            records=self.records,
            results=self.results,
        )
