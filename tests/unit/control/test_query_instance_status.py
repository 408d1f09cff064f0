"""What an instance of standing queries tells others: a file, metrics; and how it is run."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from headrace.control.query_instance_status import (
    QueryInstanceStatus,
    QueryStatusFolder,
    query_exposition,
)
from headrace.control.query_run import QueryRun, instance_status
from headrace.control.transfer_run import TransferRunOptions
from headrace.queries.instance.instance import AggregatorStatus
from headrace.settings.model import Settings
from headrace.transfer.status import STALE_AFTER_SECONDS, TransferState

STATUS = QueryInstanceStatus(
    "ads",
    instance="host-1",
    records=100,
    results=7,
    windows=3,
    owned=(0, 1),
    uncovered=(5,),
    late={"a": 2, "b": 3},
    unbalanced={"clicks": 4, "views": 0},
    faulty={"c": "no field 'price'"},
    updated_ms=1_800_000_000_000,
    event_ms={"clicks": 1_799_999_998_500},
)


@pytest.fixture(autouse=True)
def moment(monkeypatch):
    """Statuses are read in the moment in which this one was written, whenever tests run."""
    monkeypatch.setattr(time, "time", lambda: STATUS.updated_ms / 1000)


@pytest.fixture
def folder(tmp_path):
    return QueryStatusFolder(Settings(root=tmp_path, name="shop", modules=(), lake=""))


def test_a_status_is_read_as_it_was_written(folder):
    folder.write(STATUS)
    assert folder.read() == [STATUS]


def test_an_instance_that_is_silent_has_failed(folder):
    folder.write(replace(STATUS, updated_ms=STATUS.updated_ms - int(STALE_AFTER_SECONDS * 1000)))
    [status] = folder.read()
    assert status.state is TransferState.FAILED
    assert "no heartbeat for 30 s" in status.reason
    assert (status.partitions, status.late_events, status.unbalanced_events) == (2, 5, 4)


def test_what_an_instance_knew_goes_with_its_partitions_to_another(folder):
    before = int(STALE_AFTER_SECONDS * 1000)
    folder.write(replace(STATUS, instance="killed", updated_ms=STATUS.updated_ms - before))
    folder.write(replace(STATUS, instance="next", owned=(1, 2)))
    killed, following = folder.read()
    assert (killed.state, killed.records, killed.results) == (TransferState.FAILED, 100, 7)
    assert (killed.partitions, killed.late_events, killed.unbalanced_events) == (0, 0, 0)
    assert (following.partitions, following.late_events) == (2, 5)


def test_what_a_killed_instance_knew_does_not_come_back_when_its_successor_stops(folder):
    before = int(STALE_AFTER_SECONDS * 1000)
    folder.write(replace(STATUS, instance="killed", updated_ms=STATUS.updated_ms - before))
    folder.write(replace(STATUS, instance="next", owned=(), state=TransferState.STOPPED))
    killed, _ = folder.read()
    assert (killed.partitions, killed.windows, killed.late_events) == (0, 0, 0)


def test_statuses_of_ended_instances_go_with_the_next_start(folder):
    others = [
        replace(STATUS, queries="logs", state=TransferState.STOPPED),
        replace(STATUS, instance="host-2"),
    ]
    for status in (replace(STATUS, state=TransferState.STOPPED), *others):
        folder.write(status)
    folder.forget("ads")
    assert sorted(folder.read(), key=str) == sorted(others, key=str)


def test_every_figure_is_a_metric():
    lines = query_exposition(STATUS).splitlines()
    labels = 'queries="ads",instance="host-1"'
    for line in (
        f"headrace_queries_records_total{{{labels}}} 100",
        f"headrace_queries_results_total{{{labels}}} 7",
        f"headrace_queries_windows{{{labels}}} 3",
        f"headrace_queries_late_events{{{labels}}} 5",
        f"headrace_queries_unbalanced_events{{{labels}}} 4",
        f"headrace_queries_partitions{{{labels}}} 2",
        f"headrace_queries_uncovered_partitions{{{labels}}} 1",
        f"headrace_queries_faulty_queries{{{labels}}} 1",
        f'headrace_queries_topic_behind_seconds{{{labels},topic="clicks"}} 1.500',
        f'headrace_queries_state{{{labels},state="running"}} 1',
    ):
        assert line in lines


def test_a_spare_waits_and_says_for_what():
    status = instance_status(AggregatorStatus("ads", waiting="other instances have all partitions"))
    assert (status.state, status.partitions) == (TransferState.WAITING, 0)
    assert status.reason == "other instances have all partitions"


class StandInInstance:
    """An instance that has some statuses, one after the other, and then ends or fails."""

    def __init__(self, *statuses, failure=None):
        self._statuses, self._failure = statuses, failure

    def status(self):
        return AggregatorStatus("ads")

    def stop(self):
        pass

    def run(self, observe):
        for status in self._statuses:
            observe(status)
        if self._failure is not None:
            raise self._failure


def test_a_run_ends_with_the_figures_of_its_instance_and_without_partitions(folder):
    seen = []
    instance = StandInInstance(AggregatorStatus("ads", partitions=(0,), results=4))
    QueryRun(instance, folder, TransferRunOptions()).run(seen.append)
    assert [(status.state.value, status.results) for status in seen] == [
        ("running", 4), ("stopped", 4),
    ]  # fmt: skip
    assert (seen[-1].owned, folder.read()) == ((), [seen[-1]])


def test_a_run_that_fails_says_why(folder):
    failure = RuntimeError("the next record is not there any more")
    instance = StandInInstance(AggregatorStatus("ads"), failure=failure)
    with pytest.raises(RuntimeError):
        QueryRun(instance, folder, TransferRunOptions()).run(lambda _: None)
    [status] = folder.read()
    assert (status.state, status.reason) == (TransferState.FAILED, str(failure))
