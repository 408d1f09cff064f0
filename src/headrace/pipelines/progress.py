"""How a pipeline is doing, counted at the end of each batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from headrace.metrics import METRICS
from headrace.runtime.clock import now_in_ms
from headrace.service.status import ServiceStatus, State

_OWN = frozenset(metric.name for metric in METRICS)


@dataclass(frozen=True)
class PipelineProgress(ServiceStatus):
    """Counts since the run began, and figures of the last batch.

    Units: rows, records, seconds; names are those of ``headrace.metrics``. In JSON the ``figures``
    stand beside the others.

    Attributes:
        batch_id: None before the first batch of the run.
        backlog_records: None while it is not known: the planner has not seen the ends of the topics
            since the run began, or the broker does not respond.
        backlog_seconds: None while it is not known: as of ``backlog_records``, and while there is a
            backlog and the run has read nothing.
        exit_code: what ``headrace run`` ends with for it: 0 unless it failed or was refused.
        figures: of the pipeline's sink and steps, by the names of their metrics; texts say why
            something beside the batches fails.
    """

    state: State = State.STARTING
    batch_id: int | None = None
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    late_side_rows: int = 0
    late_dead_letters: int = 0
    duplicate_rows: int = 0
    behind_watermark_rows: int = 0
    dropped_by_watermark_rows: int = 0
    dead_letters: int = 0
    tombstones: int = 0
    replays_skipped: int = 0
    records_per_second: float = 0.0
    batch_seconds: float = 0.0
    backlog_records: int | None = None
    backlog_seconds: float | None = None
    idle_partitions: tuple[str, ...] = ()
    paused_partitions: tuple[str, ...] = ()
    restarts: int = 0
    exit_code: int = 0
    figures: Mapping[str, int | str] = field(default_factory=dict)

    kind: ClassVar[str] = "pipeline"
    folder: ClassVar[str] = ""
    states: ClassVar = (
        State.STARTING,
        State.RUNNING,
        State.RESTARTING,
        State.FINISHED,
        State.STOPPED,
        State.FAILED,
        State.REFUSED,
    )
    metrics = METRICS

    def figure(self, name: str) -> float | None:
        """Returns the value of a metric, also of those of its sink and steps."""
        value = super().figure(name) if name in _OWN else self.figures.get(name)
        return None if isinstance(value, str) else value

    def after(self, **changes: Any) -> PipelineProgress:
        """Returns the progress with ``changes``, updated now."""
        return replace(self, updated_ms=now_in_ms(), **changes)

    def same_as(self, other: PipelineProgress) -> bool:
        """Whether nothing but the time differs."""
        return replace(self, updated_ms=other.updated_ms) == other

    def to_json(self) -> dict[str, Any]:
        """Returns plain values by name, the figures among them."""
        values = super().to_json()
        figures: dict[str, Any] = values.pop("figures")
        return figures | values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Reads what :meth:`to_json` wrote. Raises as :meth:`ServiceStatus.from_json`."""
        names = {cls.kind, *(member.name for member in fields(cls))}
        figures = {name: value for name, value in values.items() if name not in names}
        return super().from_json({**values, "figures": figures})
