"""`headrace measure` on a real broker: nothing of the project changes, nothing stays."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest
from tests.in_process import answer, invoke, output
from tests.integration.service import HEADRACE
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS

from headrace.kafka.admin.topics import apply_changes, plan_topics
from headrace.kafka.client.admin_requests import admin
from headrace.kafka.client.clients import client_config, producer
from headrace.kafka.client.offsets import latest_offsets
from headrace.model import Topic, TopicPartition
from headrace.operations.measuring.result import read_measured
from headrace.operations.measuring.scratch import SCRATCH_PREFIX
from headrace.settings import KafkaSettings

FLOW = """
from datetime import datetime, timedelta

from headrace import Kafka, Lake, Pipeline, Send, Topic, Unique, WorkerRecord, worker

class Click:
    user: str
    n: int

clicks = Topic("{clicks}", event=Click, key="user", partitions=3)
enriched = Topic("{enriched}")

@worker(topic=clicks, name="{worker}", subpartitions=4)
async def enrich(click: Click, record: WorkerRecord, send: Send) -> None:
    assert record.topic == clicks.name
    send(enriched.name, b"x" * 50, key=record.key)

@worker(topic=clicks, name="{worker}-odd")
def odd(click: Click) -> None:
    if click.n % 4 == 0:
        raise ValueError("no fourth click is taken")

@worker(topic=clicks, name="{worker}-none")
def none(click: Click) -> None:
    raise ValueError("no click is taken")

def double(clicks):
    return clicks.selectExpr("user", "2 * n AS n")

to_lake = Pipeline("{worker}-lake", clicks, Lake("clicks"))

class Order:
    number: int
    at: datetime

orders = Topic("{enriched}-orders", event=Order, event_time="at")
unique = Unique(["number"], within=timedelta(days=1))
without_duplicates = Pipeline("{worker}-unique", orders, Lake("orders", unique=unique))
doubled = Topic("{enriched}-doubled", event=Click)
to_topic = Pipeline("{worker}-topic", clicks, Kafka(doubled), steps=[double])
"""
FILE = """
[project]
name = "measured"
modules = ["flow"]

[kafka]
bootstrap_servers = "{servers}"
"""
RECORDS = 120


class Project:
    def __init__(self, broker, topic, folder) -> None:
        self.folder, self.clicks, self.enriched = folder, topic(), topic()
        self.worker = f"w-{self.clicks}"
        names = {"clicks": self.clicks, "enriched": self.enriched, "worker": self.worker}
        (folder / "flow.py").write_text(FLOW.format(**names))
        (folder / "headrace.toml").write_text(FILE.format(servers=broker.bootstrap_servers))
        self.config = client_config(KafkaSettings(), broker.bootstrap_servers)

    def create(self, records: int = RECORDS) -> None:
        topics = [Topic(self.clicks, partitions=3), Topic(self.enriched)]
        apply_changes(self.config, plan_topics(topics, {}))
        sender = producer(self.config)
        for number in range(records):
            event = json.dumps({"user": f"u{number % 7}", "n": number})
            sender.produce(self.clicks, event, f"u{number % 7}")
        assert sender.flush(FLUSH_SECONDS) == 0

    def measure(self, *words: object, seconds: float = 0.5):
        options = ("--seconds", seconds, "--project", self.folder)
        return answer("measure", *words, *options)

    def sizes(self) -> dict[TopicPartition, int]:
        partitions = [TopicPartition(self.clicks, number) for number in range(3)]
        ends = latest_offsets(self.config, [*partitions, TopicPartition(self.enriched, 0)])
        return {partition: offset for partition, (offset, _) in ends.items()}

    def left_behind(self) -> list[str]:
        client = admin(self.config)
        topics = client.list_topics(timeout=LIMIT_SECONDS).topics
        groups = client.list_consumer_groups().result(LIMIT_SECONDS).valid
        names = [*topics, *(group.group_id for group in groups)]
        return [name for name in names if name.startswith(SCRATCH_PREFIX)]

    def groups(self) -> set[str]:
        listed = admin(self.config).list_consumer_groups().result(LIMIT_SECONDS).valid
        return {group.group_id for group in listed}


@pytest.fixture
def project(broker, topic, tmp_path) -> Project:
    return Project(broker, topic, tmp_path)


def test_a_worker_is_measured_and_nothing_of_the_project_changes(project):
    project.create()
    before = project.sizes()
    path = project.folder / "enrich.json"
    document = project.measure(project.worker, "-o", path)
    assert (document["kind"], document["name"]) == ("worker", project.worker)
    assert document["sample"]["records"] == RECORDS
    assert len(document["rounds"]) == 5
    rounds = document["rounds"]
    # What is sent and what is done are counted apart: a round may have the sends of the one before.
    sent, records = (sum(one[name] for one in rounds) for name in ("sent_bytes", "records"))
    assert sent > 50 * records * 0.5
    assert sum(one["cpu_seconds"] for one in rounds) > 0
    assert document["failed_share"] == 0
    assert document["peak_memory_bytes"] > 10_000_000
    assert 0 < document["user"]["cpu_share"] < 1
    assert document["records_per_second"]["low"] <= document["records_per_second"]["median"]
    assert json.loads(path.read_text()) == document
    assert read_measured(path).records_per_second.median > 0
    assert project.sizes() == before
    assert project.left_behind() == []
    assert f"headrace.{project.worker}" not in project.groups()


@pytest.mark.parametrize(
    ("name", "missing"), [("lake", "the lake's storage"), ("topic", "the sink (kafka)")]
)
def test_a_pipeline_is_measured_and_nothing_of_the_project_changes(project, name, missing):
    project.create()
    before = project.sizes()
    path = project.folder / "measured.json"
    words = [f"{project.worker}-{name}", "--seconds", "2", "-o", path, "--json"]
    command = [HEADRACE, "measure", *words, "--project", project.folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    assert document["kind"] == "pipeline"
    assert len(document["rounds"]) >= 1
    # Files of the next batch may be there when the end of one is noticed.
    assert sum(one["sent_bytes"] for one in document["rounds"]) > 0
    assert sum(one["cpu_seconds"] for one in document["rounds"]) > 0
    assert 0 < document["peak_worker_bytes"] < document["peak_memory_bytes"]
    assert any(missing in part for part in document["not_measured"])
    assert answer("size", "--rate", 1000, "--measured", path)["needs"]["cores"]["amount"] > 0
    assert project.sizes() == before
    assert project.left_behind() == []
    assert f"headrace.{project.worker}-{name}" not in project.groups()
    written = [file.name for file in (project.folder / ".headrace").iterdir()]
    assert written == ["headrace.log"]


def test_a_table_without_duplicates_gets_the_rows_of_each_repetition(project):
    """The sample of 50 is repeated, and each time its events have other numbers."""
    events = project.folder / "orders.ndjson"
    lines = (json.dumps({"number": n, "at": "2026-01-01T00:00:00Z"}) for n in range(50))
    events.write_text("\n".join(lines))
    words = [f"{project.worker}-unique", "--from", events, "--seconds", "2", "--json"]
    command = [HEADRACE, "measure", *words, "--project", project.folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    for measured in document["rounds"]:
        assert measured["sent_records"] == measured["records"] > 50
    assert sum(measured["sent_bytes"] for measured in document["rounds"]) > 0
    assert not any("duplicates" in part for part in document["not_measured"])


@pytest.mark.parametrize(("name", "step"), [("", "warm-up, "), ("-lake", "warm-up: ")])
def test_ctrl_c_ends_a_measurement_and_nothing_stays(project, name, step, monkeypatch):
    project.create()
    temporary = project.folder / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    command = [HEADRACE, "measure", project.worker + name, "--seconds", "600"]
    with subprocess.Popen(
        [*map(str, command), "--project", str(project.folder)], stderr=subprocess.PIPE, text=True
    ) as process:
        seen = iter(process.stderr)
        assert next(line for line in seen if step in line)
        assert project.left_behind()
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130, rest
    assert "Traceback" not in rest
    assert project.left_behind() == []
    assert [path for path in temporary.iterdir() if path.name.startswith(SCRATCH_PREFIX)] == []


def test_a_producer_is_measured_and_nothing_is_sent_to_its_topic(project):
    project.create()
    before = project.sizes()
    path = project.folder / "clicks.json"
    document = project.measure(project.clicks, "-o", path)
    assert (document["kind"], document["name"]) == ("producer", project.clicks)
    assert document["sample"]["records"] == RECORDS
    assert all(one["sent_records"] == one["records"] for one in document["rounds"])
    sized = answer("size", "--rate", 1000, "--measured", path)
    assert sized["consumed_per_second"] is None
    assert sized["needs"]["processes"]["amount"] >= 1
    assert project.sizes() == before
    assert project.left_behind() == []


def test_a_topic_without_an_event_class_has_nothing_to_encode(project):
    project.create()
    words = ("measure", project.enriched, "--project", project.folder)
    assert "no event class" in invoke(*words, code=2).output


def test_records_that_fail_are_counted_and_written_nowhere(project):
    project.create()
    document = project.measure(f"{project.worker}-odd")
    assert document["failed_share"] == pytest.approx(0.25, abs=0.05)
    assert project.left_behind() == []


def test_a_worker_that_fails_at_each_record_has_no_rate(project):
    project.create()
    words = ("--seconds", 0.5, "--project", project.folder)
    result = invoke("measure", f"{project.worker}-none", *words, code=2)
    assert "records failed, the first one with ValueError: no click is taken" in result.output
    assert project.left_behind() == []


def test_an_empty_topic_is_measured_with_a_file_of_events(project):
    project.create(records=0)
    words = ("measure", project.worker, "--seconds", 0.5, "--project", project.folder)
    assert "has no records" in invoke(*words, code=2).output
    events = project.folder / "events.ndjson"
    events.write_text('{"user": "ann", "n": 1}\n\n{"user": "bob", "n": 2}\n')
    shown = output(*words, "--from", events)
    assert "with 2 records of" in shown
    events.write_text('{"user": "ann", "n": 1}\n{"user": "bob"}\n')
    assert f"line 2 of {events} is no event" in invoke(*words, "--from", events, code=2).output
    assert project.left_behind() == []
