"""`make demo-sinks`: three stores hold what the raw file holds, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from tests.acceptance.examples import EXAMPLES, Import, left_running

from headrace import Pipeline
from headrace.project.check import load_project
from headrace.settings import load_settings

EXAMPLE = "ad_serving"
DAY = date(2019, 11, 24)
NOON = datetime(2019, 11, 24, 12, tzinfo=UTC)


@pytest.fixture
def program(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo, which finds the servers of the tests as it does by `make demo-sinks`."""
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent), prepend=os.pathsep)
    return project / "demo_sinks.py"


@pytest.mark.drill
def test_it_ends_with_0_when_each_store_holds_what_the_raw_file_holds(
    demo: subprocess.Popen[str], project: Path
) -> None:
    output, _ = demo.communicate()
    assert demo.returncode == 0, output
    assert "By then they had committed" in output
    assert "They agree." in output
    stores = ("opensearch", "bigquery", "iceberg")
    balanced = ", ".join(f"impressions-to-{store}" for store in stores)
    assert f"balanced in every window that is over: {balanced}\n" in output
    assert left_running(project) == []


@pytest.mark.drill
def test_interrupted_it_stops_what_it_started(demo: subprocess.Popen[str], project: Path) -> None:
    assert demo.stdout is not None
    output = next(line for line in demo.stdout if "Send a week" in line)
    demo.send_signal(signal.SIGINT)
    rest, _ = demo.communicate()
    assert demo.returncode == 130, output + rest
    assert left_running(project) == []


def test_all_three_pipelines_are_fused(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    pipelines = load_project(load_settings(example / "sinks", {})).declared(Pipeline).values()
    assert [pipeline.path.kind for pipeline in pipelines] == ["fused"] * 3


def test_the_raw_file_has_60000_impressions_in_seven_days(module: Import) -> None:
    week = module("proof_sinks").of_raw_file()
    assert sorted(day.day for day in week) == list(range(24, 31))
    assert sum(day.rows for day in week.values()) == 60_000
    assert sum(day.events for day in week.values()) == 60_000


def test_equal_stores_agree(module: Import) -> None:
    assert module("demo_sinks").verdict(3, week(module), {"a": week(module), "b": week(module)})


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 4},
        {"events": 2},
        {"item_ids": 71},
        {"positions": 5},
        {"scores": Decimal("0.300000001")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_store_that_differs_in_a_figure_does_not_agree(
    module: Import, change: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    raw = week(module)
    other = {DAY: replace(raw[DAY], **change)}
    assert not module("demo_sinks").verdict(3, raw, {"good": raw, "bad": other})
    assert "bad differs on 2019-11-24\n" in capsys.readouterr().out


def test_a_store_that_lacks_a_day_or_has_another_one_does_not_agree(module: Import) -> None:
    raw, verdict = week(module), module("demo_sinks").verdict
    assert not verdict(3, raw, {"empty": {}})
    assert not verdict(3, raw, {"more": raw | {date(2019, 12, 1): raw[DAY]}})


def test_events_that_kafka_did_not_acknowledge_are_noticed(module: Import) -> None:
    assert not module("demo_sinks").verdict(2, week(module), {"a": week(module)})


def test_rows_that_are_twice_in_iceberg_are_counted_twice(module: Import, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    catalog = SqlCatalog("headrace", uri=uri, warehouse=tmp_path.as_uri())
    rows = pa.table(
        {
            "event_id": ["a", "b"],
            "event_time": pa.array([NOON, NOON], pa.timestamp("us", "UTC")),
            "item_id": [30, 40],
            "position": [1, 3],
            "propensity_score": pa.array([Decimal("0.1"), Decimal("0.2")], pa.decimal128(10, 9)),
        }
    )
    catalog.create_namespace("default")
    table = catalog.create_table("default.impressions", rows.schema)
    proof = module("proof_sinks")
    table.append(rows)
    assert proof.of_iceberg(uri) == {DAY: proof.Day(2, 2, 70, 4, Decimal("0.3"))}
    table.append(rows.slice(1))
    assert proof.of_iceberg(uri) == {DAY: proof.Day(3, 2, 110, 7, Decimal("0.5"))}


def test_documents_of_opensearch_are_read_page_by_page(module: Import) -> None:
    def request(_method: str, path: str, body: object) -> object:
        if "aggs" in (body or {}):
            sums = {"item_id": {"value": 110.0}, "position": {"value": 7.0}}
            bucket = {"key": 1_574_553_600_000, "doc_count": 3, **sums}
            return {"aggregations": {"days": {"buckets": [bucket]}}}
        return None if path.endswith("_refresh") else {"_scroll_id": "s", "hits": pages.pop(0)}

    pages = [
        {"hits": [document("a", "0.100000000"), document("b", "0.2")]},
        {"hits": [document("b", "0.2")]},
        {"hits": []},
    ]
    proof = module("proof_sinks")
    assert proof.of_opensearch(request) == {DAY: proof.Day(3, 2, 110, 7, Decimal("0.5"))}


def test_numbers_of_bigquery_are_texts(module: Import) -> None:
    proof = module("proof_sinks")
    rows = [["2019-11-24", "3", "2", "110", "7", "0.5"]]
    assert proof.of_bigquery(lambda _: rows) == {DAY: proof.Day(3, 2, 110, 7, Decimal("0.5"))}


def week(module: Import) -> dict[date, object]:
    """Three impressions of a day."""
    return {DAY: module("proof_sinks").Day(3, 3, 70, 6, Decimal("0.3"))}


def document(event_id: str, score: str) -> dict[str, object]:
    values = {"event_id": event_id, "event_time": NOON.isoformat(), "propensity_score": score}
    return {"_source": values}
