"""Settings of Kafka clients of one declaration: the brokers and the logs of topics have them."""

from __future__ import annotations

import json
import threading

import pytest
from tests.kafka_topics import make_topic
from tests.waiting import FLUSH_SECONDS, wait_for

from headrace.kafka.client.clients import client_config, connected_producer
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.group.groups import describe_group
from headrace.links.copying.run import copy_run
from headrace.links.mirror.declaration import Mirror
from headrace.model import Topic, TopicPartition
from headrace.operations.planning.plan import make_plan
from headrace.project.check import load_project
from headrace.project.loaded import LoadedProject
from headrace.service.run import RunOptions
from headrace.settings import KafkaSettings, load_settings
from headrace.workers import Worker, WorkerTask
from headrace.workers import run as worker_runs

RECORDS, BYTES = 30, 20_000
NUMBERS = ("none", "gzip", "snappy", "lz4", "zstd")
"""The codecs by their numbers in the log."""


@pytest.fixture
def settings(broker, second_broker, tmp_path):
    """A project whose declarations have settings of their own."""
    (tmp_path / "headrace.toml").write_text(
        f"""\
        [project]
        name = "ads"
        modules = ["flow"]
        [kafka]
        bootstrap_servers = "{broker.bootstrap_servers}"
        [kafka.producer]
        compression.type = "gzip"
        [sites.waw.kafka]
        bootstrap_servers = "{second_broker.bootstrap_servers}"
        [workers.tuned.kafka.client]
        client.id = "tuned-worker"
        [workers.tuned.kafka.consumer]
        fetch.message.max.bytes = 1000
        fetch.wait.max.ms = 5000
        [workers.tuned.kafka.producer]
        compression.type = "zstd"
        batch.num.messages = 1
        [mirrors.copied.kafka.producer]
        compression.type = "snappy"
        """
    )
    return load_settings(tmp_path, {})


class Running:
    """A service on a thread."""

    def __init__(self, run):
        self._run, self.failure = run, None
        self._thread = threading.Thread(target=self._runs)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._run.stop()
        self._thread.join()

    def _runs(self):
        try:
            self._run.run(lambda _: None)
        except Exception as error:  # noqa: BLE001 - raised by `until`
            self.failure = error

    def until(self, holds):
        wait_for(lambda: self.failure or holds())
        assert self.failure is None, self.failure


def config_of(broker):
    return client_config(KafkaSettings(), broker.bootstrap_servers)


def written(broker, topic):
    """A topic with records, each in a batch of its own."""
    config = config_of(broker)
    make_topic(config, topic, 1)
    sender = connected_producer(config, {"batch.num.messages": "1", "compression.type": "none"})
    for number in range(RECORDS):
        sender.produce(topic, b"%d" % number * BYTES, b"k")
    assert sender.flush(FLUSH_SECONDS) == 0


def batches(broker, topic):
    """The codec and the number of records of each batch in the log of a topic."""
    [log] = (broker.folder / "kafka" / "node-1" / "data" / f"{topic}-0").glob("*.log")
    content, at, found = log.read_bytes(), 0, []
    while at + 61 <= len(content):
        length = int.from_bytes(content[at + 8 : at + 12], "big")
        attributes = int.from_bytes(content[at + 21 : at + 23], "big")
        if not attributes & 0x20:  # no marker of a transaction
            count = int.from_bytes(content[at + 57 : at + 61], "big")
            found.append((NUMBERS[attributes & 7], count))
        at += 12 + length
    return found


def end_of(broker, topic):
    partition = TopicPartition(topic, 0)
    return watermarks(config_of(broker), [partition])[partition][1]


def test_a_worker_reads_and_writes_with_its_own_settings(settings, broker, topic, monkeypatch):
    source, target = topic("source"), topic("target")
    written(broker, source)
    make_topic(config_of(broker), target, 1)
    requests, plain = {}, worker_runs.source_config

    def count(statistics):
        seen = json.loads(statistics)
        fetches = sum(one["req"].get("Fetch", 0) for one in seen["brokers"].values())
        requests[seen["name"]] = fetches

    counted = {"statistics.interval.ms": "50", "stats_cb": count}
    monkeypatch.setattr(worker_runs, "source_config", lambda *of: plain(*of) | counted)

    class Task(WorkerTask):
        async def process(self, record):
            self.send(target, record.value, key=record.key)

    worker = Worker("tuned", Topic(source), Task, group=f"g-{source}")
    run = worker_runs.worker_run(settings, worker, worker_runs.WorkerRunOptions())
    with Running(run) as running:
        running.until(lambda: end_of(broker, target) == RECORDS)
        # A fetch has one batch: the limit is below the size of each.
        running.until(lambda: max(requests.values()) >= RECORDS)
        group = describe_group(config_of(broker), worker.consumer_group)
        assert [member.client_id for member in group.members] == ["tuned-worker"]
    assert batches(broker, target) == [("zstd", 1)] * RECORDS


def test_a_mirror_writes_with_its_own_settings_and_another_with_those_of_all(
    settings, broker, second_broker, topic
):
    codecs = {}
    for name in ("copied", "other"):
        source = topic(name)
        written(second_broker, source)
        make_topic(config_of(broker), f"waw.{source}", 1)
        mirror = Mirror(name, source="waw", topics={source: Topic(f"waw.{source}")})
        run = copy_run(LoadedProject(settings, (mirror,)), mirror, RunOptions())
        with Running(run) as running:
            running.until(lambda copy=f"waw.{source}": end_of(broker, copy) >= RECORDS)
        codecs[name] = {codec for codec, _ in batches(broker, f"waw.{source}")}
    assert codecs == {"copied": {"snappy"}, "other": {"gzip"}}


def test_a_plan_shows_what_is_set(settings):
    module = """\
from headrace import Mirror, Topic, worker
clicks = Topic("clicks")
copy = Topic("copy")
copied = Mirror("copied", source="waw", topics={"clicks": copy})
@worker(topic=clicks)
def tuned(record): ...
"""
    (settings.root / "flow.py").write_text(module)
    rows = {(row.of, row.name): row for row in make_plan(load_project(settings)).clients}
    assert set(rows) == {("site", "central"), ("worker", "tuned"), ("mirror", "copied")}
    assert rows["site", "central"].producer == {"compression.type": "gzip"}
    assert rows["worker", "tuned"].client == {"client.id": "tuned-worker"}
    assert rows["worker", "tuned"].consumer["fetch.message.max.bytes"] == "1000"
