"""Checks the metrics that a pipeline's sinks and steps add to those of every pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.metrics import Metric
from headrace.model.fault import Fault, is_a
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.figures import PipelineFigures

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Counters are exposed with an ending.
_TAKEN = {"state"} | {
    name for metric in PipelineFigures.metrics for name in (metric.name, f"{metric.name}_total")
}


def metric_faults(pipeline: Pipeline) -> Iterator[Fault]:
    """Yields a fault for each metric that Prometheus would not take, or that is there already."""
    where = f"pipeline {pipeline.name!r}: metric"
    named: dict[str, Metric] = {}
    for metric in pipeline.metrics:
        if not is_a(metric, Metric):
            yield Fault(f"{where} {metric!r} is not a Metric", "headrace.Metric(...)")
        elif not is_a(metric.name, str) or not _NAME.fullmatch(metric.name):
            yield Fault(f"{where} {metric.name!r}: Prometheus takes no such name", _NAME.pattern)
        elif metric.name in _TAKEN:
            yield Fault(f"{where} {metric.name!r} is one of every pipeline", "another name")
        elif named.setdefault(metric.name, metric) != metric:
            yield Fault(f"{where} {metric.name!r} is declared in two ways", "two names")
