"""`make demo`: the week lands, the numbers agree, and nothing stays behind, interrupted or not."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ad_serving"
CLICKS = {"all": 80, "men": 115, "women": 92}
ROWS = {
    "impressions": 60_000,
    "late_impressions": 427,
    "clicks": 287,
    "unmatched": 10,
    "conversions": 90,
    "unmatched_conversions": 14,
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the example, so that a demo that somebody looks at is left alone."""
    return shutil.copytree(
        EXAMPLE, tmp_path / "ad_serving", ignore=shutil.ignore_patterns(".headrace", "__pycache__")
    )


@pytest.mark.drill
def test_it_ends_with_0_when_lake_and_postgres_hold_what_the_raw_file_holds(
    demo: subprocess.Popen[str], project: Path
) -> None:
    told, _ = demo.communicate()
    assert demo.returncode == 0, told
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
    assert "They agree." in told
    stages = (
        "impressions-to-lake, impressions-to-stats, clicks-with-impressions",
        "clicks-to-lake, clicks-to-stats, conversions-with-clicks",
    )
    assert f"balanced in every window that is over: {', '.join(stages)}\n" in told
    assert "Ledger, unknown" not in told
    assert _left_running(project) == []


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
    told = next(line for line in demo.stdout if moment in line)
    demo.send_signal(signal_)
    rest, _ = demo.communicate()
    assert demo.returncode == 130, told + rest
    assert _left_running(project) == []


def _rows(table: Path) -> pl.DataFrame:
    return pl.read_delta(str(table))


def _left_running(project: Path) -> list[str]:
    """Servers that still run, and processes that work in the project's folder."""
    command = [str(Path(sys.executable).with_name("headrace")), "status", "--json"]
    told = subprocess.run(command, cwd=project, stdout=subprocess.PIPE, check=True).stdout
    servers = [one["name"] for one in json.loads(told)["servers"] if one["running"]]
    processes = (one for one in Path("/proc").glob("[0-9]*") if _works_in(one, project))
    return servers + [one.name for one in processes]


def _works_in(process: Path, folder: Path) -> bool:
    try:
        return (process / "cwd").readlink().is_relative_to(folder)
    except OSError:  # gone, or somebody else's
        return False
