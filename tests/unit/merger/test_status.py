"""What an instance of a merger tells others, in JSON and for Prometheus."""

from __future__ import annotations

from dataclasses import replace

from headrace.merger.status import MergerStatus
from headrace.transfer.prometheus import exposition
from headrace.transfer.status import TransferStatusFolder

STATUS = MergerStatus(
    "clicks",
    instance="host-1",
    records=100,
    late=3,
    lags={"waw.clicks/0": 7, "waw.clicks/1": None},
    sorted_to_ms={"clicks/0": 1_000, "clicks/1": None},
    waits_for={"clicks/0": ["par.clicks/0"], "clicks/1": []},
    idle=["lyo.clicks/0"],
    refused={"clicks/2": "a source has lost records"},
    updated_ms=3_500,
)
LABELS = 'merger="clicks",instance="host-1"'


def lines(**changes):
    return exposition(replace(STATUS, **changes)).splitlines()


def test_every_figure_is_a_metric():
    for line in (
        f"headrace_merger_records_total{{{LABELS}}} 100",
        f"headrace_merger_late_total{{{LABELS}}} 3",
        f"headrace_merger_waiting_partitions{{{LABELS}}} 1",
        f"headrace_merger_idle_partitions{{{LABELS}}} 1",
        f"headrace_merger_sorted_to_age_seconds{{{LABELS}}} 2.500",
        f'headrace_merger_partition_lag_records{{{LABELS},topic="waw.clicks",partition="0"}} 7',
        f'headrace_merger_partition_refused{{{LABELS},topic="clicks",partition="0"}} 0',
        f'headrace_merger_partition_refused{{{LABELS},topic="clicks",partition="2"}} 1',
        f'headrace_merger_state{{{LABELS},state="running"}} 1',
    ):
        assert line in lines()


def test_an_age_that_is_not_known_yet_has_no_sample():
    waiting = lines(waits_for={"clicks/1": ["par.clicks/1"]})
    assert not [line for line in waiting if line.startswith("headrace_merger_sorted_to_age")]
    none_waits = lines(waits_for={"clicks/0": [], "clicks/1": []})
    assert f"headrace_merger_sorted_to_age_seconds{{{LABELS}}} 0" in none_waits


def test_a_status_is_read_as_it_was_written(tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: STATUS.updated_ms / 1000)
    folder = TransferStatusFolder(tmp_path, MergerStatus)
    folder.write(STATUS)
    [status] = folder.read()
    assert status.to_json() == STATUS.to_json()
