"""Ordinary functions in processes of their own, on a real broker."""

import os
from datetime import timedelta

import confluent_kafka
import pytest
from tests.integration.instances import Bench, drill, running, until_brokers_say
from tests.integration.sync_tasks import Busy, Dying, Endless, Squares

from headrace.errors import ProcessingTimeoutError
from headrace.kafka.client import watermarks
from headrace.kafka.dead_letters import scan
from headrace.model import TopicPartition
from headrace.workers import DeadLetters, KeyHash, RoundRobin
from headrace.workers.timing import WorkerTiming

PROCESSES = {
    "sync_tasks": "processes",
    "parallelism": 2,
    "commit_every": timedelta(milliseconds=100),
}


@pytest.fixture
def bench(broker):
    made = Bench(broker.bootstrap_servers)
    made.output = f"{made.topic.name}-out"
    made.create(made.output)
    made.create(made.topic.dead_letters)
    return made


def run_until_committed(bench, worker, offset):
    async def run():
        async with running(bench.instance(worker)):
            await until_brokers_say(lambda: bench.committed(worker) == {0: offset})

    drill(run())


def sent(bench):
    partition = TopicPartition(bench.output, 0)
    [(_, end)] = watermarks(bench.client, [partition]).values()
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": bench.client["bootstrap.servers"], "group.id": "reader"}
    )
    reader.assign([confluent_kafka.TopicPartition(bench.output, 0, 0)])
    found = {}
    while len(found) < end:
        message = reader.poll(1)
        if message is not None:
            found[message.key()] = message.value()
    reader.close()
    return found


def test_each_task_lives_in_one_process_and_what_it_sends_is_there(bench):
    bench.send(40, keys=40)
    declared = {"config": {"output": bench.output}, "on_failure": DeadLetters(), **PROCESSES}
    worker = bench.worker(Busy, partitioner=KeyHash(4), **declared)
    run_until_committed(bench, worker, 40)
    found = sent(bench)
    assert set(found) == {b"%d" % number for number in range(40) if number != 13}
    lanes = dict(value.split()[::-1] for value in found.values())
    assert {value.split()[1]: value.split()[0] for value in found.values()} == lanes
    assert len(set(found.values())) == len(lanes) == 4
    assert len(set(lanes.values())) == 2
    assert b"%d" % os.getpid() not in lanes.values()
    assert [one.letter.reason for one in scan(bench.client, bench.topic.name)] == ["unlucky"]


def test_batches_go_to_processes_as_arrow(bench):
    bench.send(100)
    worker = bench.worker(Squares, config={"output": bench.output}, **PROCESSES)
    run_until_committed(bench, worker, 100)
    assert sent(bench) == {b"%d" % n: b"%d" % n**2 for n in range(100)}


def test_a_process_that_ends_by_itself_is_the_records_failure(bench):
    bench.send(5)
    worker = bench.worker(Dying, on_failure=DeadLetters(), **PROCESSES)
    run_until_committed(bench, worker, 5)
    [stored] = scan(bench.client, bench.topic.name)
    assert stored.letter.offset == 3
    assert "ended by itself: exit code 1" in stored.letter.detail


def test_a_process_that_never_answers_is_ended_with_the_instance(bench):
    bench.send(2)
    worker = bench.worker(
        Endless,
        partitioner=RoundRobin(1),
        on_failure=DeadLetters(),
        processing_timeout=timedelta(seconds=1),
        drain_timeout=timedelta(seconds=1),
        **PROCESSES,
    )
    with pytest.raises(ProcessingTimeoutError):
        drill(bench.instance(worker, timing=WorkerTiming(close_seconds=1)).run())
    assert bench.committed(worker) == {0: 1}
