"""The pure parts of the benchmark of offline files."""

import json
import sys
from dataclasses import replace

import pytest
from bench.driver import OutputWrongError, SystemFailedError
from bench.offline_client import rows as client_rows
from bench.offline_files import BENCHMARK, SYSTEMS, UNITS, Held, Run, check, rows
from bench.offline_files import _timed as timed
from bench.offline_lines import COLUMNS, TABLE, items, write
from bench.report import PAGE

from headrace.offline_files.entry import Entry, read_line
from headrace.offline_files.files import Line


def test_lines_rows_and_events_hold_the_same_values(tmp_path):
    files = write(tmp_path / "input", 25)
    assert [path.name for path in sorted(files.lines.iterdir())] == [
        f"offline.{number}" for number in range(10)
    ]
    unpacked = list(client_rows(files.lines))
    assert [row["counter"] for row in unpacked] == list(range(25))
    events = [json.loads(line) for line in files.events.read_text().splitlines()]
    assert events == [row | {"body": json.loads(row["body"])} for row in unpacked]
    copied = [line.split("\t") for line in files.rows.read_text().splitlines()]
    assert copied == [[str(row[column]) for column in COLUMNS] for row in unpacked]


def test_lines_are_the_same_in_every_run_and_the_loader_takes_them():
    first, again = [[item.line() for item in items(3)] for _ in range(2)]
    assert first == again
    for number, line in enumerate(first):
        entry = read_line(Line("offline.0", number + 1, line.encode()), 10_000_000)
        assert isinstance(entry, Entry)
        assert (entry.table, entry.counter) == (TABLE, number)


def test_each_counter_once_passes():
    check(Held.of(range(3)), 3)


@pytest.mark.parametrize("counters", [[], [0, 1], [0, 1, 1], [0, 1, 2, 2], [1, 2, 3]])
def test_a_counter_missing_or_twice_or_unknown_fails(counters):
    with pytest.raises(OutputWrongError, match="3 lines gave"):
        check(Held.of(counters), 3)


def test_speeds_are_beside_those_of_the_same_round_and_the_same_server():
    run = Run(1_000_000, 10.0, 8.0, 4.0, 100.0)
    runs = {
        "load-postgres": [run, replace(run, seconds=20.0)],
        "copy": [replace(run, seconds=5.0)] * 2,
        "load-topic": [run, run],
        "produce": [replace(run, seconds=20.0), run],
    }
    by_name = {(row.system, row.metric): row for row in rows(runs)}
    beside_copy = by_name["load-postgres", "times_copy"]
    assert (beside_copy.low, beside_copy.high) == (0.25, 0.5)
    assert by_name["load-topic", "times_produce"].median == 1.5
    assert by_name["load-topic", "cpu_seconds_per_million"].median == 8.0
    assert by_name["load-topic", "server_cpu_seconds_per_million"].median == 4.0
    assert {metric for system, metric in by_name if system == "copy"} == UNITS.keys() - {
        "times_copy",
        "times_produce",
    }


def test_a_command_that_fails_gives_no_figures(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.offline_files.WORK", tmp_path)
    command = [sys.executable, "-c", "raise SystemExit('no such table')"]
    with pytest.raises(SystemFailedError, match=r"copy: exit code 1: no such table"):
        timed("copy", command, 1, 100)


def test_the_page_has_a_place_for_the_table_and_names_systems_and_metrics():
    section = PAGE.read_text().split(f"## {BENCHMARK}: ")[1].split("\n## ")[0]
    assert f"<!-- {BENCHMARK}: begin -->" in section
    assert f"<!-- {BENCHMARK}: end -->" in section
    assert all(f"`{name}`" in section for name in (*SYSTEMS, *UNITS))
