"""The pure parts of the writer's benchmark."""

from pathlib import Path

import polars as pl
import pytest
from bench.command import in_turn
from bench.driver import OutputWrongError
from bench.writer import Run, check, rows

from headrace.runtime.process_tree import Usage


def run(seconds, cpu_seconds=8.0):
    return Run(
        2_000_000, 2_000_000, 3.0, seconds, Usage(cpu_seconds, 900.0, 300.0), 1.0, 32, 50_000_000
    )


def test_every_system_runs_once_a_round_and_each_round_begins_with_another():
    order = list(in_turn(["a", "b", "c"], 3))
    assert [system for number, system in order if number == 1] == ["b", "c", "a"]
    assert {number: {s for n, s in order if n == number} for number, _ in order} == {
        number: {"a", "b", "c"} for number in range(3)
    }


def test_cpu_is_counted_by_message_and_the_ratio_within_each_round():
    measured = {
        "headrace-fused": [run(5.0), run(4.0)],
        "plain-spark": [run(10.0), run(12.0)],
    }
    found = {(one.system, one.metric): one for one in rows(measured)}
    assert found["headrace-fused", "cpu_us_per_message"].median == 4.0
    assert found["headrace-fused", "messages_per_second"].high == 500_000
    ratio = found["headrace-fused", "times_plain_spark"]
    assert (ratio.low, ratio.median, ratio.high) == (2.0, 2.5, 3.0)
    assert ("plain-spark", "times_plain_spark") not in found


def table(folder: Path, *files: list[str]) -> list[Path]:
    paths = [folder / f"{number}.parquet" for number in range(len(files))]
    for path, ids in zip(paths, files, strict=True):
        pl.DataFrame({"event_id": ids}).write_parquet(path)
    return paths


def test_files_with_every_event_once_pass(tmp_path):
    check(table(tmp_path, ["a", "b"], ["c"]), 3)


@pytest.mark.parametrize("files", [(["a", "b"],), (["a", "b"], ["b"]), (["a", "b"], ["c", "d"])])
def test_files_with_an_event_missing_or_twice_or_unknown_fail(tmp_path, files):
    with pytest.raises(OutputWrongError, match="3 events gave"):
        check(table(tmp_path, *files), 3)
