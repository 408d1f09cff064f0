"""The status of an instance that answers standing queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

from headrace.events.times import TimeMs
from headrace.metrics import QUERY_METRICS, QUERY_TOPIC_METRICS
from headrace.service.status import InstanceStatus, State

if TYPE_CHECKING:
    from headrace.runtime.prometheus import Sample


@dataclass(frozen=True)
class QueryInstanceStatus(InstanceStatus):
    """Counts since an instance started, and its state. Names are those of the metrics.

    Attributes:
        state: state of the instance; a spare is waiting.
        records: matched records that the instance has read.
        results: results that it has written.
        windows: open windows.
        owned: numbers of the partitions that it has.
        uncovered: numbers of the partitions that no instance has.
        late: late events, by query.
        unbalanced: number of missing and surplus matches by topic, as of the last snapshots.
        event_ms: event clock by topic, in milliseconds since 1970.
        faulty: queries whose records can't be added up, with the reason.
    """

    records: int = 0
    results: int = 0
    windows: int = 0
    owned: tuple[int, ...] = ()
    uncovered: tuple[int, ...] = ()
    late: Mapping[str, int] = field(default_factory=dict)
    unbalanced: Mapping[str, int] = field(default_factory=dict)
    event_ms: Mapping[str, TimeMs] = field(default_factory=dict)
    faulty: Mapping[str, str] = field(default_factory=dict)

    kind: ClassVar[str] = "queries"
    folder: ClassVar[str] = "queries"
    states: ClassVar = (State.RUNNING, State.WAITING, State.STOPPED, State.FAILED)
    derived: ClassVar[tuple[str, ...]] = (
        "partitions",
        "uncovered_partitions",
        "late_events",
        "unbalanced_events",
        "faulty_queries",
        "behind_seconds",
    )
    metrics = QUERY_METRICS
    part_metrics: ClassVar = {"topic": QUERY_TOPIC_METRICS}

    @property
    def partitions(self) -> int:
        """Returns how many partitions the instance has."""
        return len(self.owned)

    @property
    def uncovered_partitions(self) -> int:
        """Returns how many partitions no instance has."""
        return len(self.uncovered)

    @property
    def late_events(self) -> int:
        """Returns how many events came for windows that had ended."""
        return sum(self.late.values())

    @property
    def unbalanced_events(self) -> int:
        """Returns the number of missing and surplus matches."""
        return sum(self.unbalanced.values())

    @property
    def faulty_queries(self) -> int:
        """Returns how many queries have records that can't be added up."""
        return len(self.faulty)

    @property
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
