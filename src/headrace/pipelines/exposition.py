"""Metrics of pipelines, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.metrics import METRICS, Metric
from headrace.pipelines.progress import PipelineProgress, PipelineState
from headrace.runtime.prometheus import metric_lines, state_lines

STATE = "headrace_pipeline_state"
_PREFIX = "headrace_pipeline_"


def exposition(pipelines: Iterable[PipelineProgress], own: Iterable[Metric]) -> str:
    """Returns the text: every metric of each pipeline, those of its ``own``, and its state.

    Without a sample where a value is not known.

    Args:
        pipelines: how they are doing.
        own: metrics of their sinks and steps; of those of one name, the first one counts.
    """
    labelled = [({"pipeline": progress.pipeline}, progress) for progress in pipelines]
    lines: list[str] = []
    for metric in METRICS:
        samples = [
            (labels, value)
            for labels, progress in labelled
            if (value := getattr(progress, metric.name)) is not None  # not known yet
        ]
        lines += metric_lines(_PREFIX, metric, samples)
    by_name: dict[str, Metric] = {}
    for metric in own:
        by_name.setdefault(metric.name, metric)
    for metric in by_name.values():
        samples = [
            (labels, progress.figures[metric.name])
            for labels, progress in labelled
            if metric.name in progress.figures
        ]
        lines += metric_lines(_PREFIX, metric, samples)
    states = [(labels, progress.state) for labels, progress in labelled]
    lines += state_lines(STATE, "the state of the pipeline: 1 for it", PipelineState, states)
    return "\n".join(lines) + "\n"
