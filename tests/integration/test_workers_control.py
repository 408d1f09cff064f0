"""Workers of a project on a real broker: watched, paused on request, listed, reset."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

import pytest
from tests.integration.instances import (
    Bench,
    drill,
    recorder,
    running,
    total,
    until_brokers_say,
)
from tests.waiting import LIMIT_SECONDS, until, wait_for

from headrace.errors import (
    PartitionMissingError,
    ProcessingFailedError,
    TopicMissingError,
    WorkerRunningError,
)
from headrace.kafka.client.admin_requests import describe
from headrace.model import Start, TopicPartition
from headrace.runtime.servers.ports import free_ports
from headrace.service.run import ServiceRun
from headrace.service.status import State, StatusFolder
from headrace.settings import Settings, load_settings
from headrace.workers import KeyHash, RetryTopics, WorkerTask
from headrace.workers import reset as worker_reset
from headrace.workers import run as control
from headrace.workers.status import WorkerStatus

HEADRACE = Path(sys.executable).with_name("headrace")
FAST = {"commit_every": timedelta(milliseconds=100)}


@pytest.fixture
def bench(broker) -> Bench:
    """A topic that the broker shows."""
    bench = Bench(broker.bootstrap_servers, partitions=3)
    wait_for(lambda: bench.topic.name in describe(bench.client, [bench.topic.name]))
    return bench


@pytest.fixture
def settings(broker, tmp_path) -> Settings:
    """A project on the shared broker."""
    (tmp_path / "headrace.toml").write_text(
        '[project]\nname = "ads"\nmodules = ["flow"]\n'
        f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
    )
    return load_settings(tmp_path, {})


class Watched:
    """A run on a thread, and the last that it told."""

    def __init__(self, run: ServiceRun[WorkerStatus]) -> None:
        self.run, self.seen, self.failure = run, [], None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run.stop()
        self._thread.join()

    def until(self, condition):
        wait_for(lambda: self.seen and condition(self.seen[-1]), lambda: self.seen[-1:])
        return self.seen[-1]

    def _run(self) -> None:
        try:
            self.run.run(self.seen.append)
        except ProcessingFailedError as error:
            self.failure = error


def test_an_instance_tells_how_it_stands_and_how_it_ended(bench, settings):
    """One key blocks: its lane fills, its partition is paused, the lane beside it starves."""
    bench.send(100, keys=1, partition=0)
    blocked = threading.Event()

    class Blocking(WorkerTask):
        def process(self, record):
            blocked.wait(LIMIT_SECONDS)

    [port] = free_ports(1)
    worker = bench.worker(Blocking, partitioner=KeyHash(2), queue_bytes=10_000, **FAST)
    run = control.worker_run(
        settings, worker, control.WorkerRunOptions(metrics_port=port, instance_id="me")
    )
    with Watched(run) as watched:
        seen = watched.until(lambda one: one.starved and one.lag_records >= 100)
        assert (seen.name, seen.instance, seen.state) == (worker.name, "me", "running")
        assert (seen.partitions, seen.lanes, seen.in_process, seen.starved) == (3, 6, 1, 1)
        assert (seen.lag_records, seen.processed, seen.queue_limit_bytes) == (100, 0, 10_000)
        assert seen.waiting * 200 < seen.queue_bytes
        assert seen.paused_partitions == {f"{bench.topic.name}/0": ("lane",)}
        watched.until(lambda one: one.lag_seconds > 0 and one.processing_seconds > 0)
        [shown] = StatusFolder(settings.state, WorkerStatus).read()
        assert (shown.instance, shown.lag_records) == ("me", 100)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        who = f'worker="{worker.name}",instance="me",topic="{bench.topic.name}",partition="0"'
        assert f"headrace_worker_partition_lag_records{{{who}}} 100\n" in text
        assert f'headrace_worker_partition_paused{{{who},reason="lane"}} 1\n' in text
        blocked.set()
        watched.until(lambda one: one.processed == 100 and not one.lag_records)
    last = watched.seen[-1]
    assert (last.state, last.processed, last.reason) == (State.CLOSED, 100, "")
    assert StatusFolder(settings.state, WorkerStatus).read()[0].state is State.CLOSED


def test_an_instance_that_failed_says_why(bench, settings):
    bench.send(1)

    class Failing(WorkerTask):
        async def process(self, record):
            raise LookupError("no such campaign")

    run = control.worker_run(settings, bench.worker(Failing), control.WorkerRunOptions())
    with Watched(run) as watched:
        watched.until(lambda one: one.has_ended)
    assert watched.failure is not None
    [shown] = StatusFolder(settings.state, WorkerStatus).read()
    assert shown.state is State.FAILED
    assert "no such campaign" in shown.reason


def test_a_partition_that_is_paused_stays_so_through_restarts_and_rebalances(bench, settings):
    seen, task = recorder()
    worker = bench.worker(task, **FAST)

    def done(partition):
        return sorted(
            n for lane, numbers in seen.items() if lane.partition == partition for n in numbers
        )

    async def with_one_then_two_instances():
        first, second = bench.instance(worker), bench.instance(worker)
        async with running(first):
            for partition in range(3):
                bench.send(10, first=100 * partition, partition=partition)
            await until(lambda: total(seen) == 30)
            paused = await asyncio.to_thread(control.pause, settings, worker, (), (1,))
            assert paused == [f"{bench.topic.name}/1"]
            await until(lambda: _paused(first) == {1})
            for partition in range(3):
                bench.send(10, first=100 * partition + 10, partition=partition)
            await until(lambda: total(seen) == 50)
            async with running(second):
                await until(lambda: second.assignments and len(first.assignments) < 3)
                bench.send(10, first=220, partition=2)
                bench.send(10, first=20, partition=0)
                await until(lambda: total(seen) == 70)
                await until(lambda: _paused(first) | _paused(second) == {1})

    async def after_a_restart():
        instance = bench.instance(worker)
        async with running(instance):
            await until(lambda: _paused(instance) == {1})
            bench.send(10, first=30, partition=0)
            await until(lambda: total(seen) == 80)
            assert done(1) == list(range(100, 110))
            assert await asyncio.to_thread(control.resume, settings, worker, (), ()) == []
            await until(lambda: done(1) == list(range(100, 120)))

    drill(with_one_then_two_instances())
    [standing] = control.standings(settings, [worker])
    assert standing.paused_partitions == (f"{bench.topic.name}/1",)
    assert standing.lag_records == 10
    assert standing.lag_seconds > 0
    drill(after_a_restart())
    [standing] = control.standings(settings, [worker])
    assert (standing.paused_partitions, standing.lag_records) == ((), 0)


def _paused(instance):
    found = (instance.assignments or {}).values()
    return {one.partition.partition for one in found if "requested" in one.paused_for}


def test_records_that_wait_in_a_paused_partition_wait_on(bench):
    begun, gate = [], asyncio.Event()

    class Gated(WorkerTask):
        async def process(self, record):
            begun.append((record.partition, record.offset))
            if record.partition == 1:
                await gate.wait()

    instance = bench.instance(bench.worker(Gated))

    async def run():
        async with running(instance):
            bench.send(10, partition=1)
            await until(lambda: sum(lane.waiting for lane in _lanes(instance)) == 9)
            instance.assignments.backpressure.set_requested({TopicPartition(bench.topic.name, 1)})
            gate.set()
            bench.send(5, partition=2)
            await until(lambda: (2, 4) in begun)
            assert [offset for partition, offset in begun if partition == 1] == [0]
            instance.assignments.backpressure.set_requested(())
            await until(lambda: (1, 9) in begun)

    drill(run())


def _lanes(instance):
    return instance.assignments.lanes if instance.assignments else []


def test_intents_of_one_worker_are_not_anothers(bench, settings):
    one, other = bench.worker(WorkerTask), bench.worker(WorkerTask, name="other")
    control.pause(settings, one, [bench.topic.name], ())
    assert len(control.resume(settings, one, (), (0,))) == 2
    assert control.resume(settings, other, (), ()) == []
    assert len(control.resume(settings, one, (), (7,))) == 2
    with pytest.raises(PartitionMissingError, match="Its partitions are 0 to 2"):
        control.pause(settings, one, (), (3,))
    with pytest.raises(TopicMissingError):
        control.pause(settings, one, ["no-such"], ())


def test_a_worker_without_members_is_reset_and_begins_with_the_earliest_record(bench, settings):
    seen, task = recorder()
    worker = bench.worker(task, **FAST)
    bench.send(20, partition=0)
    assert worker_reset.reset(settings, worker, dry_run=False).committed == {}

    async def process(count):
        async with running(bench.instance(worker)):
            await until(lambda: total(seen) == count)
            await until_brokers_say(lambda: bench.committed(worker).get(0) == 20)
            with pytest.raises(WorkerRunningError):
                await asyncio.to_thread(worker_reset.reset, settings, worker, dry_run=False)
            [standing] = await asyncio.to_thread(control.standings, settings, [worker])
            assert (standing.group.state, standing.lag_records) == ("stable", 0)
            assert [one.partitions for one in standing.group.members] == [3]

    drill(process(20))
    for dry_run in (True, False):
        reset = worker_reset.reset(settings, worker, dry_run=dry_run)
        assert reset.committed[f"{bench.topic.name}/0"] == reset.repeated == 20
    assert {*worker_reset.reset(settings, worker, dry_run=False).committed.values()} == {0}
    [standing] = control.standings(settings, [worker])
    assert (standing.group.state, standing.lag_records) == ("empty", 20)
    drill(process(40))


def test_a_worker_begins_where_a_reset_says_or_with_what_comes(bench, settings):
    seen, task = recorder()
    worker = bench.worker(task, **FAST)
    bench.send(10, partition=0)
    moved = worker_reset.reset(settings, worker, to="latest", dry_run=False)
    assert (moved.repeated, moved.skipped) == (0, 10)
    time.sleep(0.01)
    between = datetime.now(UTC)
    bench.send(10, first=10, partition=0)
    moved = worker_reset.reset(settings, worker, to=between, dry_run=False)
    assert moved.begins[f"{bench.topic.name}/0"] == 10
    later = bench.worker(task, name=f"{worker.name}-later", start=Start.LATEST, **FAST)

    async def process(worker, count):
        async with running(bench.instance(worker)):
            await until(lambda: total(seen) == count)

    drill(process(worker, 10))

    async def only_what_comes():
        async with running(bench.instance(later)):
            await until_brokers_say(lambda: bench.committed(later).get(0) == 20)
            bench.send(5, first=20, partition=0)
            await until(lambda: total(seen) == 15)

    drill(only_what_comes())
    assert sorted(number for lane in seen.values() for number in lane) == list(range(10, 25))


def test_retry_topics_count_in_what_is_listed_and_reset(bench, settings):
    bench.create(bench.topic.dead_letters)

    class FailsOnce(WorkerTask):
        async def process(self, record):
            if record.attempt == 1:
                raise ConnectionError("away")

    worker = bench.worker(FailsOnce, on_failure=RetryTopics([timedelta(0)]), **FAST)
    bench.send(5, partition=0)

    def standing():
        [found] = control.standings(settings, [worker])
        return found.lag_records, sum(one.committed or 0 for one in found.partitions)

    async def process():
        async with running(bench.instance(worker)):
            await until_brokers_say(lambda: standing() == (0, 10))

    drill(process())
    reset = worker_reset.reset(settings, worker, dry_run=False)
    assert sum(reset.committed.values()) == 10
    assert reset.repeated == 10
    assert standing() == (10, 0)


def test_the_installed_command_runs_an_instance_until_it_is_told_to_stop(bench, settings):
    (settings.root / "flow.py").write_text(
        "from headrace import Topic, worker\n"
        f"records = Topic({bench.topic.name!r}, partitions=3)\n"
        "@worker(topic=records, subpartitions=4)\n"
        "async def enrich(record, send): pass\n"
    )
    bench.send(50, keys=7)
    command = [HEADRACE, "workers", "run", "enrich", "--json", "--project", settings.root]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        try:
            while json.loads(run.stdout.readline())["worker"]["processed"] < 50:
                pass
            run.send_signal(signal.SIGINT)
            *events, last = map(json.loads, run.stdout.read().splitlines())
        except BaseException:
            run.kill()
            raise
    assert run.returncode == 0
    [stopping] = [event for event in events if event["event"] == "stopping"]
    assert stopping["worker"] == {"worker": "enrich", "state": "draining"}
    assert last["event"] == "ended"
    assert (last["worker"]["state"], last["worker"]["processed"]) == ("closed", 50)
