"""A worker that reads topics of another site: what belongs to its records is at their cluster."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.integration.test_client_settings import Running, config_of, end_of
from tests.kafka_topics import make_topic
from tests.waiting import FLUSH_SECONDS, wait_for

from headrace.errors import TopicMissingError
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import connected_producer
from headrace.kafka.client.offsets import group_offsets
from headrace.kafka.group.groups import describe_group
from headrace.model import Topic, TopicPartition
from headrace.settings import load_settings
from headrace.workers import DeadLetters, RetryTopics, Worker, WorkerTask, reset
from headrace.workers import run as worker_runs
from headrace.workers.tasks.retry_topics import retry_topics

RECORDS, BAD = 20, b"13"


@pytest.fixture
def settings(broker, second_broker, tmp_path):
    (tmp_path / "headrace.toml").write_text(
        '[project]\nname = "ads"\nmodules = ["flow"]\n'
        f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
        f'[sites.waw.kafka]\nbootstrap_servers = "{second_broker.bootstrap_servers}"\n'
    )
    return load_settings(tmp_path, {})


def write(broker, topic, records):
    sender = connected_producer(config_of(broker))
    for key, value in records:
        sender.produce(topic, value, key)
    assert sender.flush(FLUSH_SECONDS) == 0


@pytest.fixture
def worker(broker, second_broker, topic):
    """Its topic and dead letters are at waw alone, what it sends and looks up is here alone."""
    source, target, names = topic("clicks"), topic("named"), topic("names")
    for name in (source, f"{source}.dead"):
        make_topic(config_of(second_broker), name, 1)
    for name in (target, names):
        make_topic(config_of(broker), name, 1)
    write(broker, names, [(b"k", b"looked up here")])
    write(second_broker, source, [(b"k", b"%d" % number) for number in range(RECORDS)])

    class Task(WorkerTask):
        async def process(self, record):
            if record.value == BAD:
                raise LookupError
            self.send(target, record.value + b" " + self.references["names"].get(b"k"))

    return Worker(
        f"worker-{source}",
        Topic(source),
        Task,
        site="waw",
        on_failure=RetryTopics([timedelta(milliseconds=100)], then=DeadLetters()),
        commit_every=timedelta(milliseconds=100),
        references={"names": Topic(names, compaction=True)},
        config={"target": target},
    )


def test_positions_retries_and_dead_letters_are_at_the_site_and_what_is_sent_is_here(
    settings, broker, second_broker, worker
):
    here, waw = config_of(broker), config_of(second_broker)
    [source], [retry] = worker.topics, retry_topics(worker)
    partition, target = TopicPartition(source.name, 0), worker.config["target"]
    run = worker_runs.worker_run(settings, worker, worker_runs.WorkerRunOptions())
    with Running(run) as running:
        running.until(lambda: end_of(broker, target) == RECORDS - 1)
        running.until(lambda: end_of(second_broker, source.dead_letters) == 1)
        running.until(
            lambda: group_offsets(waw, worker.consumer_group, [partition]) == {partition: RECORDS}
        )
        assert len(describe_group(waw, worker.consumer_group).members) == 1
        assert not describe_group(here, worker.consumer_group).members
    assert set(describe(waw, [source.name, retry, target])) == {source.name, retry}
    assert set(describe(here, [source.name, source.dead_letters, retry, target])) == {target}

    write(second_broker, source.name, [(b"k", b"later")] * 3)
    [standing] = worker_runs.standings(settings, [worker])
    assert standing.lag_records == 3
    assert not standing.missing_topics

    paused = worker_runs.pause(settings, worker, [source.name], [])
    assert paused == [f"{source.name}/0"]
    [standing] = worker_runs.standings(settings, [worker])
    assert standing.paused_partitions == (f"{source.name}/0",)
    assert not worker_runs.resume(settings, worker, [], [])

    wait_for(lambda: not describe_group(waw, worker.consumer_group).members)
    reset.reset(settings, worker, to="earliest", dry_run=False)
    assert group_offsets(waw, worker.consumer_group, [partition]) == {partition: 0}


def test_a_topic_that_is_missing_at_the_site_ends_the_instance(settings, broker, topic):
    """Headrace creates none there, and the one of that name here is not read."""
    name = topic("clicks")
    make_topic(config_of(broker), name, 1)

    class Task(WorkerTask):
        async def process(self, record):
            """Does nothing."""

    worker = Worker(f"worker-{name}", Topic(name), Task, site="waw")
    run = worker_runs.worker_run(settings, worker, worker_runs.WorkerRunOptions())
    with pytest.raises(TopicMissingError):
        run.run(lambda _: None)
