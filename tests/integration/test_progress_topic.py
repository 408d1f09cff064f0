"""Instances of a distributed run publish their progress, on a real broker."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.integration.instances import Bench, recorder
from tests.waiting import wait_for

from headrace.kafka.admin.topics import topic_states
from headrace.kafka.group.subscription import Membership
from headrace.kafka.table.topic_table import read_table
from headrace.runtime.servers.ports import free_ports
from headrace.service.status import STALE_AFTER_SECONDS, State
from headrace.workers.monitoring import progress_topic
from headrace.workers.monitoring.progress_topic import (
    PROGRESS_TOPIC,
    ProgressFollower,
    ProgressReporter,
    ensure_progress_topic,
)
from headrace.workers.placement.distributed_run import DistributedRun
from headrace.workers.status import PartitionStatus, WorkerStatus

RUNNING = WorkerStatus("enrich", State.RUNNING, instance="enrich-0", processed=12, lanes=4)
PARTITION = PartitionStatus("clicks", 1, ("requested",), 120, 100, 90, 1_700_000, 2048, 7, 33, 1.25)


@pytest.fixture
def client(broker) -> dict[str, str]:
    config = {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
    ensure_progress_topic(config)
    return config


@pytest.fixture
def run() -> str:
    return uuid.uuid4().hex


def test_what_an_instance_reports_reaches_who_follows_its_run(client, run):
    state = topic_states(client, [PROGRESS_TOPIC])[PROGRESS_TOPIC]
    assert set(state.config["cleanup.policy"].split(",")) == {"compact", "delete"}
    assert state.config["retention.ms"] == "600000"
    followers = [ProgressFollower(client, one) for one in (run, run + "x")]
    reporters = [ProgressReporter(client, run) for _ in range(2)]
    for reporter, name in zip(reporters, ("enrich-0", "enrich-1"), strict=True):
        reporter.report(replace(RUNNING, instance=name, own=[PARTITION]))
    wait_for(lambda: len(followers[0].seen()) == 2)
    one, other = followers[0].seen()
    assert (one.instance, one.processed, one.state) == ("enrich-0", 12, State.RUNNING)
    assert one.own == [PARTITION]
    assert other.instance == "enrich-1"
    failed = replace(RUNNING, state=State.FAILED, reason="no such campaign", processed=13)
    reporters[0].report(replace(failed, own=[PARTITION]))
    wait_for(lambda: followers[0].seen()[0].has_ended)
    one = followers[0].seen()[0]
    assert (one.reason, one.processed, one.lanes, one.own) == ("no such campaign", 13, 0, ())
    assert followers[1].seen() == []
    for one in (*reporters, *followers):
        one.close()


def test_nothing_is_told_twice_in_a_moment_unless_the_state_changes(client, run, monkeypatch):
    monkeypatch.setattr(progress_topic, "time", SimpleNamespace(monotonic=lambda: 1_000.0))
    reporter = ProgressReporter(client, run)
    for processed in range(100):
        reporter.report(replace(RUNNING, processed=processed))
    reporter.close()
    key = f"{run}/enrich-0".encode()
    assert b'"processed": 0' in read_table(client, PROGRESS_TOPIC)[key]
    reporter.report(replace(RUNNING, processed=100, state=State.CLOSED))
    reporter.close()
    assert b'"processed": 100' in read_table(client, PROGRESS_TOPIC)[key]


def test_an_instance_that_fell_silent_is_shown_as_failed(client, run, monkeypatch):
    clock_ms = [int(time.time() * 1000)]
    follower = ProgressFollower(client, run, lambda: clock_ms[-1])
    reporter = ProgressReporter(client, run)
    reporter.report(replace(RUNNING, updated_ms=0, own=[PARTITION]))  # its clock is wrong
    wait_for(follower.seen)
    assert follower.seen()[0].state is State.RUNNING
    later = time.time() + STALE_AFTER_SECONDS
    monkeypatch.setattr("headrace.service.status.time.time", lambda: later)
    clock_ms.append(int(later * 1000))
    [silent] = follower.seen()
    assert (silent.state, silent.processed, silent.lanes) == (State.FAILED, 12, 0)
    assert "killed" in silent.reason
    assert silent.own == ()
    follower.reset_liveness_timeout()  # nothing could be heard until now
    assert follower.seen()[0].state is State.RUNNING
    reporter.close()
    follower.close()


def test_an_instance_that_can_not_report_says_so_once_and_goes_on(caplog):
    [port] = free_ports(1)
    config = {"bootstrap.servers": f"127.0.0.1:{port}"}
    reporter = ProgressReporter(config, "run", timeout_ms=50)
    with caplog.at_level(logging.WARNING, "headrace.workers"):
        for state in WorkerStatus.states:
            reporter.report(replace(RUNNING, state=state))
        reporter.close()
    assert caplog.text.count("Failed to publish progress") == 1


def test_an_instance_of_a_distributed_run_reports_until_it_has_ended(broker, client, run):
    bench = Bench(broker.bootstrap_servers, partitions=2)
    bench.send(40, keys=7)
    worker = bench.worker(recorder()[1])
    distributed = DistributedRun(worker, client, Membership(worker.consumer_group), run)
    follower = ProgressFollower(client, run)
    thread = threading.Thread(target=distributed.instance, args=(3,))
    thread.start()
    try:
        wait_for(lambda: any(one.processed == 40 for one in follower.seen()))
        [one] = follower.seen()
        assert (one.instance, one.state) == (f"{worker.name}-3", State.RUNNING)
        assert {part.partition for part in one.own} == {0, 1}
    finally:
        distributed.prepare()
        distributed.stop()
        thread.join()
    wait_for(lambda: follower.seen()[0].state is State.CLOSED)
    assert distributed.end() == ""
    follower.close()
