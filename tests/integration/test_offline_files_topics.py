"""Offline files into real topics: events, dead letters and progress in one transaction."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import urllib.request
import uuid

import confluent_kafka
import pytest
from confluent_kafka import KafkaError
from tests.integration.service import HEADRACE
from tests.kafka_topics import wait_until_settled
from tests.offline_lines import ARTICLE, line, packed, write
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace.errors import LoaderRunningError, ProjectError, SinkError, TopicMissingError
from headrace.kafka.admin.topics import apply_changes, plan_topics
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import client_config, consumer
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.dead_letters.letters import scan
from headrace.kafka.dead_letters.replay import DeadLetterFilter, Replay, replay
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.transactions import TransactionalProducer, TransactionFencedError
from headrace.model import Topic
from headrace.model.topic import OFFLINE_FILES_TOPIC
from headrace.offline_files.loading import LoadStats
from headrace.offline_files.options import LoadOptions
from headrace.offline_files.run import load_offline_files
from headrace.project.check import load_project
from headrace.runtime.servers.ports import free_ports
from headrace.settings import KafkaSettings, load_settings

FLOW = """
from headrace import Topic


class Occurrence:
    project_id: int
    counter: int
    uuid: str | None
    billable: int | None


class Keyed:
    project_id: int
    uuid: str


occurrences = Topic("occurrences{suffix}", event=Occurrence, partitions=4)
keyed = Topic("keyed{suffix}", event=Keyed, key="uuid", partitions=4)
raw = Topic("raw{suffix}")
"""

SETTINGS = """
[project]
name = "offline"
modules = ["flow"]

[kafka]
bootstrap_servers = "{bootstrap}"
"""


class Flow:
    """A project with its topics, a folder of files, and a source of its own."""

    def __init__(self, folder, bootstrap):
        self.suffix = f"-{uuid.uuid4().hex[:8]}"
        self.folder, self.files = folder, folder / "offline"
        self.files.mkdir()
        self.source = f"host{self.suffix}"
        (folder / "flow.py").write_text(FLOW.format(suffix=self.suffix))
        (folder / "headrace.toml").write_text(SETTINGS.format(bootstrap=bootstrap))
        self.project = load_project(load_settings(folder, {}))
        self.config = client_config(KafkaSettings(), bootstrap)
        self.topic = f"occurrences{self.suffix}"
        self.into = {"raw_item": self.topic}
        apply_changes(self.config, plan_topics(list(self.project.topics.values()), {}))

    def load(self, on_batch=lambda _: None, **wanted):
        figures = LoadStats()
        given = {"source": self.source, "batch_lines": 3, "into": self.into} | wanted
        load_offline_files(LoadOptions(self.files, **given), self.project, figures, on_batch)
        return figures

    def command(self, *arguments):
        into = f"raw_item={self.topic}"
        command = [HEADRACE, "load-offline-files", self.files, "--source", self.source]
        return [*command, "--into", into, "--project", self.folder, "--json", *arguments]

    def records(self, topic):
        """Committed records, by partition and offset."""
        wait_until_settled(self.config, topic)
        partitions = describe(self.config, [topic])[topic].all_partitions
        reader = consumer(self.config, "test", {"fetch.wait.max.ms": "50"})
        beginning = confluent_kafka.OFFSET_BEGINNING
        reader.assign(
            [confluent_kafka.TopicPartition(p.topic, p.partition, beginning) for p in partitions]
        )
        found, ends = [], 0
        while ends < len(partitions):
            message = reader.poll(1)
            if message is not None and message.error() is None:
                found.append(message)
            elif message is not None:
                ends += message.error().code() == KafkaError._PARTITION_EOF
        reader.close()
        return sorted(found, key=lambda one: (one.partition(), one.offset()))

    @property
    def counters(self):
        return [json.loads(one.value())["counter"] for one in self.records(self.topic)]

    @property
    def written(self):
        """Offsets that are used up: records and the ends of transactions."""
        partitions = describe(self.config, [self.topic])[self.topic].all_partitions
        return sum(end for _, end in watermarks(self.config, partitions).values())

    @property
    def letters(self):
        return list(scan(self.config, self.topic))


@pytest.fixture
def flow(broker, tmp_path):
    return Flow(tmp_path, broker.bootstrap_servers)


def test_an_event_is_the_row_with_its_body_decoded_and_the_counter(flow):
    body = packed(b'{"b" : 1.50}')
    write(
        flow.files / "offline.1",
        line(7, project_id=12, body=body, uuid="u1", version=2),
        line(8, table="keyed", project_id=12, body=body, uuid="u2"),
    )
    flow.load(into={**flow.into, "keyed": f"keyed{flow.suffix}"})
    (event,) = flow.records(flow.topic)
    assert event.value() == (
        b'{"counter":7,"project_id":12,"body":{"b" : 1.50},"uuid":"u1","version":2}'
    )
    assert event.key() == b"12"
    assert event.headers() == [("source", flow.source.encode()), ("counter", b"7")]
    (keyed,) = flow.records(f"keyed{flow.suffix}")
    assert keyed.key() == b"u2"


def test_lines_are_loaded_once_in_the_order_of_their_project(flow):
    write(flow.files / "offline.9", *(line(n, project_id=n % 5) for n in range(40)))
    write(flow.files / "offline.10", *(line(n, project_id=n % 5) for n in range(40, 60)))
    assert flow.load(batch_lines=7).loaded == {"raw_item": 60}
    (flow.files / "offline.9").rename(flow.files / "offline.11")
    assert flow.load().skipped == 60
    found = [json.loads(one.value()) for one in flow.records(flow.topic)]
    assert sorted(one["counter"] for one in found) == list(range(60))
    for project in range(5):
        counters = [one["counter"] for one in found if one["project_id"] == project]
        assert counters == sorted(counters)


def test_a_loader_that_follows_loads_what_comes_and_says_how_it_is(flow):
    (port,) = free_ports(1)
    part = flow.files / ".part"
    command = flow.command("--follow", "--complete-after", "0", "--remove-done")

    def add(number, *counters):
        write(part, *map(line, counters)).rename(flow.files / f"offline.{number}")

    def loaded(count):
        wait_for(lambda: not list(flow.files.iterdir()), "the files were not loaded")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            metrics = answer.read().decode()
        return f'headrace_loader_loaded_total{{loader="{flow.source}"' in metrics and bool(
            re.search(rf"^headrace_loader_loaded_total.* {count}$", metrics, re.MULTILINE)
        )

    for number, stop in enumerate((signal.SIGINT, signal.SIGTERM)):
        loader = subprocess.Popen(
            [*command, "--metrics-port", str(port)], stdout=subprocess.DEVNULL
        )
        first = number * 10
        add(first, first, first + 1)
        wait_for(lambda: loaded(2))
        add(first + 1, first + 2)
        wait_for(lambda: loaded(3))
        status = [HEADRACE, "status", "--project", flow.folder, "--json"]
        [shown] = json.loads(subprocess.check_output(status))["loaders"]
        assert (shown["loader"], shown["state"]) == (flow.source, "running")
        assert (shown["loaded"], shown["files_waiting"], shown["lag_seconds"]) == (3, 0, 0)
        loader.send_signal(stop)
        assert loader.wait() == 0
        [shown] = json.loads(subprocess.check_output(status))["loaders"]
        assert shown["state"] == "stopped"
    assert flow.counters == [0, 1, 2, 10, 11, 12]


def test_what_can_not_be_loaded_is_a_dead_letter_of_its_topic_once(flow):
    shutil.copy(ARTICLE, flow.files / "offline.1")
    write(
        flow.files / "offline.2",
        line(358),
        line(359, project_id="twelve"),
        line(360, table="nowhere"),
        b"no json",
        b"x" * 3_000_000,
        line(361),
    )
    for _ in range(2):
        flow.load()
    assert sorted(flow.counters) == [358, 361]
    found = {dict(one.letter.headers)["counter"]: one.letter for one in flow.letters}
    assert {counter: one.reason for counter, one in found.items()} == {
        b"356": "bad-zlib",
        b"357": "bad-base64",
        b"359": "wrong-type",
    }
    assert found[b"356"].value == ARTICLE.read_bytes().splitlines()[0]
    assert found[b"359"].headers == (
        ("source", flow.source.encode()),
        ("file", b"offline.2"),
        ("line", b"2"),
        ("counter", b"359"),
    )
    outcome = replay(flow.config, flow.topic, DeadLetterFilter())
    assert outcome == Replay(0, 0, 0, without_record=3)
    homeless = [
        (one.letter.reason, len(one.letter.value or b""))
        for one in scan(flow.config, OFFLINE_FILES_TOPIC)
        if dict(one.letter.headers)["source"] == flow.source.encode()
    ]
    assert homeless == [
        ("unknown-table", len(line(360, table="nowhere"))),
        ("not-json", 7),
        ("not-json", 1_048_588),
    ]


def test_dead_letters_of_a_topic_that_nothing_reads_and_of_no_table_are_listed(flow):
    write(flow.files / "f.1", line(1, project_id="twelve"), b"no json")
    flow.load()

    def ask(*topic):
        command = [HEADRACE, "dead-letters", "list", *topic, "--project", flow.folder, "--json"]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    counts = {each["topic"]: each["count"] for each in ask()["topics"]}
    assert counts[flow.topic] == 1
    assert counts[OFFLINE_FILES_TOPIC] >= 1
    [letter] = ask(flow.topic)["dead_letters"]
    assert letter["reason"] == "wrong-type"
    assert "not-json" in {each["reason"] for each in ask(OFFLINE_FILES_TOPIC)["dead_letters"]}


def test_a_dry_run_writes_nothing_and_keeps_nobody_out(flow):
    write(flow.files / "offline.1", line(1), line(2, project_id=None), line(3))
    first = TransactionalProducer(flow.config, f"headrace.offline-files.{flow.source}")
    figures = flow.load(dry_run=True)
    assert (figures.loaded, figures.dead) == ({"raw_item": 2}, {"wrong-type": 1})
    assert flow.counters == []
    first.send([ProducerRecord(flow.topic, b"1", b'{"counter":5}', ())])
    assert flow.counters == [5]


def test_a_topic_must_be_declared_with_an_event_class_and_exist(flow):
    write(flow.files / "offline.1", line(1))
    with pytest.raises(SinkError, match="--into"):
        flow.load(into={})
    with pytest.raises(ProjectError, match="no topic 'raw"):
        flow.load(into={"raw_item": f"raw{flow.suffix}"})
    gone = Topic("gone", event=flow.project.topics[flow.topic].event)
    flow.project.topics["gone"] = gone
    with pytest.raises(TopicMissingError):
        flow.load(into={"raw_item": "gone"})


def test_a_loader_that_another_one_overtook_writes_nothing_more(flow):
    write(flow.files / "offline.1", *map(line, range(9)))
    loaded = []

    def overtake(_):
        if not loaded:
            loaded.append(flow.load())

    with pytest.raises(LoaderRunningError):
        flow.load(overtake)
    assert loaded[0].skipped == 3
    assert sorted(flow.counters) == list(range(9))


@pytest.fixture
def cuts(monkeypatch):
    """Each transaction of a loader finds its connections lost since the one before."""

    def lose(producer, *args):
        producer._connections.are_lost = True
        return send(producer, *args)

    send = TransactionalProducer.send
    monkeypatch.setattr(TransactionalProducer, "send", lose)


@pytest.mark.usefixtures("cuts")
def test_a_loader_that_loses_its_connections_retries_nothing(flow):
    write(flow.files / "offline.1", *map(line, range(9)))
    figures = flow.load()
    assert (figures.loaded, figures.retries) == ({"raw_item": 9}, 0)
    assert sorted(flow.counters) == list(range(9))


@pytest.mark.usefixtures("cuts")
def test_a_loader_that_lost_its_connections_and_was_overtaken_writes_nothing_more(flow):
    test_a_loader_that_another_one_overtook_writes_nothing_more(flow)


def test_progress_is_read_past_the_open_transaction_of_another_source(flow):
    write(flow.files / "offline.1", line(1))
    flow.load()
    other = confluent_kafka.Producer({**flow.config, "transactional.id": f"x{flow.suffix}"})
    other.init_transactions(LIMIT_SECONDS)
    other.begin_transaction()
    other.produce(OFFLINE_FILES_TOPIC, b"[]", b"x" + flow.suffix.encode())
    other.flush(FLUSH_SECONDS)
    write(flow.files / "offline.2", line(2))
    begins_to_end = threading.Event()

    def end():
        begins_to_end.set()  # the loader may have read on before the commit returns
        other.commit_transaction(LIMIT_SECONDS)

    ending = threading.Timer(2, end)
    ending.start()
    assert flow.load().loaded == {"raw_item": 1}
    assert begins_to_end.is_set()
    ending.join()
    assert sorted(flow.counters) == [1, 2]


def test_a_record_that_the_topic_does_not_take_is_an_error_that_names_it(flow):
    small = Topic(f"small{flow.suffix}", config={"max.message.bytes": "2000"})
    apply_changes(flow.config, plan_topics([small], {}))
    sender = TransactionalProducer(flow.config, f"t{flow.suffix}")
    sender.send([ProducerRecord(small.name, b"k", b"first", ())])
    with pytest.raises(SinkError, match=small.name):
        sender.send([ProducerRecord(small.name, b"k", os.urandom(9000), ())])
    sender.close()
    again = TransactionalProducer(flow.config, f"t{flow.suffix}")
    again.send([ProducerRecord(small.name, b"k", b"second", ())])
    assert [one.value() for one in flow.records(small.name)] == [b"first", b"second"]


def test_whoever_begins_with_an_id_ends_the_one_before(flow):
    first = TransactionalProducer(flow.config, f"t{flow.suffix}")
    first._producer.begin_transaction()
    first._producer.produce(flow.topic, b"given up", b"k")
    first._producer.flush(FLUSH_SECONDS)
    second = TransactionalProducer(flow.config, f"t{flow.suffix}")
    with pytest.raises(TransactionFencedError):
        first.commit()
    second.send([ProducerRecord(flow.topic, b"k", b"kept", ())])
    assert [one.value() for one in flow.records(flow.topic)] == [b"kept"]
