"""`make demo`: the week lands, the numbers agree, and nothing stays behind, interrupted or not."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from tests.acceptance.examples import left_running

EXAMPLE = "ad_serving"
CLICKS = {"all": 80, "men": 115, "women": 92}
ROWS = {
    "impressions": 60_000,
    "late_impressions": 427,
    "clicks": 287,
    "unmatched": 10,
    "conversions": 90,
    "unmatched_conversions": 14,
}


@pytest.mark.drill
def test_it_ends_with_0_when_lake_and_postgres_hold_what_the_raw_file_holds(
    demo: subprocess.Popen[str], project: Path
) -> None:
    output, _ = demo.communicate()
    assert demo.returncode == 0, output
    lake = project / ".headrace" / "lake"
    assert {table: _rows(lake / table)["event_id"].n_unique() for table in ROWS} == ROWS
    assert {table: _rows(lake / table).height for table in ROWS} == ROWS
    assert DeltaTable(lake / "impressions").metadata().partition_columns == ["day", "campaign"]
    clicks = _rows(lake / "clicks")
    assert dict(clicks["campaign"].value_counts().rows()) == CLICKS
    shown = clicks["impression"].struct.field("event_id")
    assert shown.to_list() == clicks["impression_id"].to_list()
    click = _rows(lake / "conversions")["click"].struct
    assert click.field("impression").struct.field("event_id").null_count() == 0
    assert "They agree." in output
    stages = (
        "impressions-to-lake, impressions-to-stats, clicks-with-impressions",
        "clicks-to-lake, clicks-to-stats, conversions-with-clicks",
    )
    assert f"balanced in every window that is over: {', '.join(stages)}\n" in output
    assert "Ledger, unknown" not in output
    assert left_running(project) == []


@pytest.mark.drill
@pytest.mark.parametrize(
    ("signal_", "moment"),
    [(signal.SIGINT, "running"), (signal.SIGTERM, "Replay")],
    ids=["Ctrl-C, Spark is up", "a polite kill, Kafka is up"],
)
def test_interrupted_it_stops_what_it_started(
    demo: subprocess.Popen[str], project: Path, signal_: signal.Signals, moment: str
) -> None:
    assert demo.stdout is not None
    output = next(line for line in demo.stdout if moment in line)
    demo.send_signal(signal_)
    rest, _ = demo.communicate()
    assert demo.returncode == 130, output + rest
    assert left_running(project) == []


def _rows(table: Path) -> pl.DataFrame:
    return pl.read_delta(str(table))
