"""The result of a measurement: its figures, and its file."""

import json
import platform

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operations.measuring.samples import measured

from headrace.operations.measuring.result import (
    Round,
    RoundSpread,
    machine,
    read_measured,
    versions,
)


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_the_median_lies_between_the_lowest_and_the_highest(values):
    spread = RoundSpread.of(values)
    assert (spread.low, spread.high) == (min(values), max(values))
    assert spread.low <= spread.median <= spread.high


def test_figures_are_those_of_all_rounds():
    result = measured()
    assert result.records_per_second == RoundSpread(2000, 1900, 2050)
    assert result.cpu_seconds_per_million.median == pytest.approx(100, rel=0.01)
    assert result.failed_share == 41 / 8000
    assert result.bytes_in_per_second == 2000 * 500
    assert result.sent_bytes_per_record == 397_950 / 8000


def test_a_file_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "enrich.json"
    measured().write(path)
    assert read_measured(path) == measured()
    document = json.loads(path.read_text())
    assert document["format"] == "headrace-measured-1"
    assert document["records_per_second"] == {"median": 2000, "low": 1900, "high": 2050}


@pytest.mark.parametrize(
    ("member", "value", "said"),
    [
        ("format", "other", "`format` is 'other'"),
        ("rounds", [], "length >= 1"),
        ("kind", "sink", "kind"),
        ("peak_memory_bytes", -1, "peak_memory_bytes"),
        ("sample", {"source": "x", "records": 1, "mean_bytes": 0}, "mean_bytes"),
    ],
)
def test_another_file_is_rejected_with_the_member_that_is_wrong(tmp_path, member, value, said):
    path = tmp_path / "enrich.json"
    measured().write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {member: value}))
    with pytest.raises(ValueError, match=said):
        read_measured(path)


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}'])
def test_a_file_that_is_no_result_is_rejected(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(ValueError):
        read_measured(path)


def test_a_rate_is_records_by_seconds():
    assert Round(2.0, 100, 0, 0.01).records_per_second == 50
    assert Round(2.0, 100, 0, 0.01).cpu_seconds_per_million == 100


def test_the_machine_and_versions_are_those_of_this_process():
    assert machine().cores >= 1
    assert machine().memory_bytes > 2**20
    assert versions()["python"] == platform.python_version()
