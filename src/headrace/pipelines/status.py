"""The status of a pipeline, updated at the end of each batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from headrace.pipelines.figures import PipelineFigures
from headrace.runtime.clock import now_in_ms
from headrace.service.status import ServiceStatus, State

_OWN = frozenset(metric.name for metric in PipelineFigures.metrics)


@dataclass(frozen=True)
class PipelineStatus(PipelineFigures, ServiceStatus):
    """Counts since the run began, and figures of the last batch.

    In JSON the ``figures`` stand beside the others.

    Attributes:
        exit_code: what ``headrace run`` ends with for it: 0 unless it failed or was refused.
        figures: of the pipeline's sink and steps, by the names of their metrics; texts say why
            something beside the batches fails.
    """

    state: State = State.STARTING
    idle_partitions: tuple[str, ...] = ()
    paused_partitions: tuple[str, ...] = ()
    exit_code: int = 0
    figures: Mapping[str, int | str] = field(default_factory=dict)

    kind: ClassVar[str] = "pipeline"
    folder: ClassVar[str] = ""
    states: ClassVar = (
        State.STARTING,
        State.RUNNING,
        State.WAITING,
        State.RESTARTING,
        State.FINISHED,
        State.STOPPED,
        State.FAILED,
        State.REFUSED,
    )

    def figure(self, name: str) -> float | None:
        """Returns the value of a metric, also of those of its sink and steps."""
        value = super().figure(name) if name in _OWN else self.figures.get(name)
        return None if isinstance(value, str) else value

    def after(self, **changes: Any) -> PipelineStatus:
        """Returns the progress with ``changes``, updated now."""
        return replace(self, updated_ms=now_in_ms(), **changes)

    def same_as(self, other: PipelineStatus) -> bool:
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
