"""The reference of metrics is the list in the code."""

from __future__ import annotations

import re

from headrace.metrics import METRICS
from headrace.pipelines.progress import PipelineProgress, PipelineState

_PAGE = "docs/reference/metrics.md"


def test_every_metric_is_documented_word_for_word(pages: dict[str, str]) -> None:
    rows = {line for line in pages[_PAGE].splitlines() if line.startswith("| `")}
    expected = {
        f"| `{one.name}` | {one.unit} | {one.meaning} | {one.when_it_moves} |" for one in METRICS
    }
    assert not expected - rows


def test_every_state_is_documented_and_nothing_else(pages: dict[str, str]) -> None:
    first_cells = set(re.findall(r"^\| `([^`]+)`", pages[_PAGE], re.MULTILINE))
    assert first_cells == {one.name for one in METRICS} | set(PipelineState)


def test_every_field_of_the_status_is_documented(pages: dict[str, str]) -> None:
    fields = PipelineProgress("any").to_json()
    assert not [name for name in fields if f"`{name}`" not in pages[_PAGE] and name != "pipeline"]
