"""The reference of metrics is the list in the code."""

from __future__ import annotations

import re

import pytest

from headrace import Join, classify, count_windows, deduplicate, enrich, fan_out, filter_rows
from headrace.metrics import Metric
from headrace.operations.servers.statuses import status_kinds
from headrace.pipelines.status import PipelineStatus
from headrace.sinks.lake.metrics import LAKE_METRICS
from headrace.sinks.opensearch.metrics import OPENSEARCH_METRICS
from headrace.sinks.postgres.metrics import UNIQUE_METRICS
from headrace.sinks.profiles.metrics import PROFILE_METRICS
from headrace.workers.status import PartitionStatus

_PAGE = "docs/reference/metrics.md"
_SECTIONS = {
    "pipelines": "Of a pipeline",
    "workers": "Of a worker",
    "mirrors": "Of a mirror",
    "mergers": "Of a merger",
    "dispatchers": "Of a dispatcher",
    "queries": "Of standing queries",
    "matched_events": "Of matched events",
    "loaders": "Of a loader",
    "drivers": "Of a driver with a standby",
}
_STATUSES = {_SECTIONS[status.name]: status.type for status in status_kinds()}
_OF_PIPELINES = (
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
)
_OF_PARTS = tuple(
    metric
    for status in _STATUSES.values()
    for metrics in status.part_metrics.values()
    for metric in metrics
)
_TITLES = {title: status.metrics for title, status in _STATUSES.items()} | {
    "Of a pipeline": (*PipelineStatus.metrics, *_OF_PIPELINES),
    "Prometheus": _OF_PARTS,
}
_STATES = {title: status.states for title, status in _STATUSES.items()}
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
    assert first_cells == {one.name for one in _TITLES[title]} | set(_STATES.get(title, ()))


def test_every_field_of_the_status_is_documented(sections: dict[str, str]) -> None:
    for title, status in _STATUSES.items():
        fields = status("any").to_json().keys() - {status.kind}
        assert not [name for name in fields if f"`{name}`" not in sections[title]]


def test_every_figure_of_a_partition_is_a_metric() -> None:
    fields = set(PartitionStatus.__dataclass_fields__) - _PARTS_OF_OTHERS
    assert fields == {one.name for one in PartitionStatus.metrics} - {
        "processing_timestamp_seconds"
    }
