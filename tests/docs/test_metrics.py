"""The reference of metrics is the list in the code."""

from __future__ import annotations

import re

import pytest

from headrace import Join, classify, count_windows, deduplicate, enrich, fan_out, filter_rows
from headrace.links.dispatcher.status import DispatcherStatus
from headrace.links.merger.status import MergerStatus
from headrace.links.mirror.status import MirrorStatus
from headrace.metrics import Metric
from headrace.pipelines.status import PipelineStatus
from headrace.queries.emit.status import EmitterStatus
from headrace.queries.windows.instance.status import QueryInstanceStatus
from headrace.sinks.lake.metrics import LAKE_METRICS
from headrace.sinks.opensearch.metrics import OPENSEARCH_METRICS
from headrace.sinks.postgres.metrics import UNIQUE_METRICS
from headrace.sinks.profiles.metrics import PROFILE_METRICS
from headrace.workers.status import PartitionStatus, WorkerStatus

_PAGE = "docs/reference/metrics.md"
_KINDS = (WorkerStatus, MirrorStatus, MergerStatus, DispatcherStatus, QueryInstanceStatus)
_TITLES = {
    "Of a pipeline": (
        *PipelineStatus.metrics,
        *LAKE_METRICS,
        *UNIQUE_METRICS,
        *OPENSEARCH_METRICS,
        *PROFILE_METRICS,
        *Join.metrics,
        *(
            metric
            for transform in (deduplicate, count_windows, filter_rows, classify, enrich, fan_out)
            for metric in transform.metrics
        ),
    ),
    "Of a worker": WorkerStatus.metrics,
    "Of a mirror": MirrorStatus.metrics,
    "Of a merger": MergerStatus.metrics,
    "Of a dispatcher": DispatcherStatus.metrics,
    "Of standing queries": QueryInstanceStatus.metrics,
    "Of matched events": EmitterStatus.metrics,
    "Prometheus": tuple(
        metric
        for kind in (
            WorkerStatus,
            MirrorStatus,
            MergerStatus,
            DispatcherStatus,
            QueryInstanceStatus,
        )
        for metrics in kind.part_metrics.values()
        for metric in metrics
    ),
}
_STATES = {
    "Of a pipeline": PipelineStatus.states,
    "Of a worker": WorkerStatus.states,
    "Of a mirror": MirrorStatus.states,
    "Of a merger": MergerStatus.states,
    "Of a dispatcher": DispatcherStatus.states,
    "Of standing queries": QueryInstanceStatus.states,
    "Of matched events": EmitterStatus.states,
    "Prometheus": (),
}
_PARTS_OF_OTHERS = {"topic", "partition", "processing_timestamp_ms"}


@pytest.fixture
def sections(pages: dict[str, str]) -> dict[str, str]:
    """Text of each section, by its title."""
    parts = re.split(r"^## (.+)$", pages[_PAGE], flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize(("title", "metrics"), _TITLES.items())
def test_every_metric_is_documented_word_for_word(
    sections: dict[str, str], title: str, metrics: tuple[Metric, ...]
) -> None:
    rows = {line for line in sections[title].splitlines() if line.startswith("| `")}
    expected = {f"| `{one.name}` | {one.unit} | {one.meaning} | {one.runbook} |" for one in metrics}
    assert not expected - rows


@pytest.mark.parametrize("title", _TITLES)
def test_every_state_is_documented_and_nothing_else(sections: dict[str, str], title: str) -> None:
    first_cells = set(re.findall(r"^\| `([^`]+)`", sections[title], re.MULTILINE))
    assert first_cells == {one.name for one in _TITLES[title]} | set(_STATES[title])


def test_every_field_of_the_status_is_documented(sections: dict[str, str]) -> None:
    worker = WorkerStatus("any").to_json()
    for title, fields in (
        ("Of a pipeline", PipelineStatus("any").to_json()),
        ("Of a worker", worker),
        ("Of a mirror", MirrorStatus("any").to_json()),
        ("Of a merger", MergerStatus("any").to_json()),
        ("Of a dispatcher", DispatcherStatus("any").to_json()),
        ("Of standing queries", QueryInstanceStatus("any").to_json()),
    ):
        wanted = fields.keys() - {"pipeline", "worker", "mirror", "merger", "dispatcher", "queries"}
        assert not [name for name in wanted if f"`{name}`" not in sections[title]]


def test_every_figure_of_a_partition_is_a_metric() -> None:
    fields = set(PartitionStatus.__dataclass_fields__) - _PARTS_OF_OTHERS
    assert fields == {one.name for one in PartitionStatus.metrics} - {
        "processing_timestamp_seconds"
    }
