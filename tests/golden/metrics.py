"""What ``/metrics`` answers for the statuses of :mod:`tests.golden.statuses`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

from tests.golden import statuses

from headrace import Join, classify, count_windows, deduplicate, enrich, fan_out, filter_rows
from headrace.ingest.figures.account_slots import SHARED_SLOT
from headrace.ingest.figures.service_metrics import (
    account_lines,
    count_names,
    metric_lines,
    spool_lines,
)
from headrace.ingest.spool.spool import SpoolStats
from headrace.metrics import Metric
from headrace.operations.servers.statuses import status_kinds
from headrace.pipelines.status import PipelineStatus
from headrace.service.metrics import exposition
from headrace.service.status import ServiceStatus
from headrace.sinks.lake.metrics import LAKE_METRICS
from headrace.sinks.opensearch.metrics import OPENSEARCH_METRICS
from headrace.sinks.postgres.metrics import UNIQUE_METRICS
from headrace.sinks.profiles.metrics import PROFILE_METRICS

_STEPS = (Join, deduplicate, count_windows, filter_rows, classify, enrich, fan_out)
OF_SINKS_AND_STEPS: tuple[Metric, ...] = (
    *LAKE_METRICS,
    *UNIQUE_METRICS,
    *OPENSEARCH_METRICS,
    *PROFILE_METRICS,
    *(metric for step in _STEPS for metric in step.metrics),
)


def _pipelines() -> str:
    progress = (statuses.PIPELINE, statuses.STARTING_PIPELINE, statuses.FAILED_PIPELINE)
    return exposition(PipelineStatus, progress, OF_SINKS_AND_STEPS)


def _of(status: ServiceStatus, *others: ServiceStatus) -> str:
    return exposition(type(status), [status, *others])


def _ingest() -> str:
    names = count_names(["clicks"], max_accounts=1)
    totals = {name: number for number, name in enumerate(names, start=1)}
    spool = SpoolStats(
        records=2,
        bytes=3,
        budget_bytes=4,
        oldest_age=timedelta(seconds=5),
        missing=6,
        rejected=7,
        quarantined=8,
    )
    lines = [
        *metric_lines(totals),
        *account_lines(totals, {"1": "acme"}, SHARED_SLOT),
        *spool_lines({"clicks": spool}),
    ]
    return "\n".join(lines)


EXPOSITIONS: dict[str, Callable[[], str]] = {
    **{
        status.type.kind.replace("_", "-"): functools.partial(_of, *statuses.OF_KIND[status.name])
        for status in status_kinds()
    },
    "pipeline": _pipelines,
    "worker": lambda: _of(replace(statuses.WORKER, own=statuses.WORKER_PARTITIONS)),
    "ingest": _ingest,
}
"""By the kind of service."""


_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")


def sorted_metrics(text: str) -> str:
    """Returns the text of ``/metrics`` in an order that says nothing: by name, then by labels."""
    families = [family.splitlines() for family in text.split("# HELP ")[1:]]
    lines = (
        line
        for help_, type_, *samples in sorted(families)
        for line in (f"# HELP {help_}", type_, *sorted(_plain(samples)))
    )
    return "\n".join(lines)


def _plain(samples: list[str]) -> Iterator[str]:
    for sample in samples:
        name, labels, value = _SAMPLE.fullmatch(sample).groups()
        inner = ",".join(sorted(re.findall(r'\w+="(?:[^"\\]|\\.)*"', labels or "")))
        yield f"{name}{{{inner}}} {float(value):.15g}"
