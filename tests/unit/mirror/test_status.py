"""What instances of mirrors tell others: status files and metrics."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from headrace.mirror.status import MirrorStatus
from headrace.transfer.prometheus import exposition
from headrace.transfer.status import STALE_AFTER_SECONDS, TransferState, TransferStatusFolder

STATUS = MirrorStatus(
    "warsaw",
    instance="host-1",
    records=100,
    value_bytes=2_000,
    loops_skipped=3,
    restarts=1,
    lags={"clicks/0": 7, "clicks/1": None},
    refused={"clicks/2": "records were deleted"},
)


@pytest.fixture(autouse=True)
def moment(monkeypatch):
    """Statuses are read in the moment in which this one was written, whenever tests run."""
    monkeypatch.setattr(time, "time", lambda: STATUS.updated_ms / 1000)


def test_a_status_is_read_as_it_was_written(tmp_path):
    folder = TransferStatusFolder(tmp_path, MirrorStatus)
    folder.write(STATUS)
    assert folder.read() == [STATUS]


def test_an_instance_that_is_silent_has_failed(tmp_path):
    folder = TransferStatusFolder(tmp_path, MirrorStatus)
    folder.write(replace(STATUS, updated_ms=STATUS.updated_ms - int(STALE_AFTER_SECONDS * 1000)))
    [status] = folder.read()
    assert status.state is TransferState.FAILED
    assert "no heartbeat for 30 s" in status.reason


def test_statuses_of_ended_instances_go_with_the_next_start(tmp_path):
    folder = TransferStatusFolder(tmp_path, MirrorStatus)
    others = [
        replace(STATUS, name="paris", state=TransferState.STOPPED),
        replace(STATUS, instance="host-2"),
    ]
    for status in (replace(STATUS, state=TransferState.STOPPED), *others):
        folder.write(status)
    folder.forget("warsaw")
    assert folder.read() == others


def test_every_figure_is_a_metric_and_an_unknown_lag_is_none():
    lines = exposition(STATUS).splitlines()
    labels = 'mirror="warsaw",instance="host-1"'
    for line in (
        f"headrace_mirror_records_total{{{labels}}} 100",
        f"headrace_mirror_value_bytes_total{{{labels}}} 2000",
        f"headrace_mirror_loops_skipped_total{{{labels}}} 3",
        f"headrace_mirror_restarts_total{{{labels}}} 1",
        f"headrace_mirror_partitions{{{labels}}} 2",
        f"headrace_mirror_refused_partitions{{{labels}}} 1",
        f"headrace_mirror_lag_records{{{labels}}} 7",
        f'headrace_mirror_partition_lag_records{{{labels},topic="clicks",partition="0"}} 7',
        f'headrace_mirror_partition_refused{{{labels},topic="clicks",partition="0"}} 0',
        f'headrace_mirror_partition_refused{{{labels},topic="clicks",partition="2"}} 1',
        f'headrace_mirror_state{{{labels},state="running"}} 1',
    ):
        assert line in lines
    assert not [line for line in lines if "partition_lag" in line and 'partition="1"' in line]
