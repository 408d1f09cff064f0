"""Metrics of pipelines, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.metrics import METRICS
from headrace.pipelines.progress import PipelineProgress, PipelineState
from headrace.runtime.prometheus import metric_lines, state_lines

STATE = "headrace_pipeline_state"
_PREFIX = "headrace_pipeline_"


def exposition(pipelines: Iterable[PipelineProgress]) -> str:
    """The text: every metric of each pipeline, and its state."""
    named = [({"pipeline": one.pipeline}, one) for one in pipelines]
    lines: list[str] = []
    for metric in METRICS:
        samples = [(labels, getattr(one, metric.name)) for labels, one in named]
        lines += metric_lines(_PREFIX, metric, samples)
    states = [(labels, one.state) for labels, one in named]
    lines += state_lines(STATE, "the state of the pipeline: 1 for it", PipelineState, states)
    return "\n".join(lines) + "\n"
