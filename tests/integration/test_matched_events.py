"""`query emit` as users run it: events that match, sent by Spark's real-time mode."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import confluent_kafka
import pytest
from tests.kafka_topics import grow_topic, make_topic

from headrace import Origin, Project
from headrace.control import load_project
from headrace.control.matched_event_balances import balance_matched_events
from headrace.control.query_registry import cancel_query, register_query
from headrace.errors import QueryMissingError
from headrace.kafka.client import client_config, committed, consumer, producer
from headrace.kafka.topics import delete_topic
from headrace.model import TopicPartition
from headrace.queries.matched_events.positions import (
    MatchedTopic,
    commit_positions,
    committed_positions,
)
from headrace.queries.topics import ensure_query_topics
from headrace.settings import KafkaSettings, load_settings
from headrace.transfer.origin import origins

HEADRACE = (sys.executable, "-m", "headrace.cli")
SECONDS = 120
PARTITIONS = 2
FLOW = """
from datetime import datetime
from headrace import MatchQueries, Pipeline, StandingQueries, Topic

class Click:
    item: str
    price: int
    at: datetime

clicks = Topic("{topic}", Click, event_time="at", partitions={partitions})
ads = StandingQueries("{name}", partitions=3)
matching = Pipeline("matching", clicks, MatchQueries(ads))
"""
CHEAP = "SELECT count(*) FROM {topic} WHERE item = 'a' AND price < 5"
ALL = "SELECT count(*) FROM {topic}"


class EmitProject:
    """A project on the shared broker, with standing queries and a topic of its own."""

    def __init__(self, folder, broker, names):
        self.config = client_config(KafkaSettings(), broker.bootstrap_servers)
        self.topic, self.name, self.folder = names("clicks"), names("ads"), folder
        module = f"flow_{uuid.uuid4().hex[:8]}"  # Python would not import a second one of a name
        (folder / "headrace.toml").write_text(
            f'[project]\nname = "emitted"\nsite = "here"\nmodules = ["{module}"]\n\n'
            f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
            '[spark.config]\n"spark.driver.memory" = "512m"\n'
        )
        flow = FLOW.format(topic=self.topic, name=self.name, partitions=PARTITIONS)
        (folder / f"{module}.py").write_text(flow)
        self.loaded = load_project(load_settings(folder, {}))
        self.queries = self.loaded.standing_queries[self.name]
        make_topic(self.config, self.topic, PARTITIONS)
        ensure_query_topics(self.config, self.queries)
        self.sent = 0

    def register(self, query_id, text, *, emits=True):
        text = text.format(topic=f'"{self.topic}"')
        text += "\nMATCHED EVENTS EMIT" if emits else ""
        return register_query(self.loaded, text, query_id=query_id)

    def cancel(self, query_id):
        cancel_query(self.loaded, query_id)

    def send(self, count, item="a", price=1):
        """Sends events to the partitions in turn; returns their places."""
        sender = producer(self.config)
        places = []
        for number in range(self.sent, self.sent + count):
            event = {"item": item, "price": price, "at": "2026-05-01T00:00:00Z"}
            sender.produce(self.topic, json.dumps(event).encode(), partition=number % PARTITIONS)
            places.append((number % PARTITIONS, number // PARTITIONS))
        assert sender.flush(30) == 0
        self.sent += count
        return places

    def records(self):
        """The records of the topic of matched events, by partition, in their order."""
        reader = consumer(self.config)
        topic = self.queries.matched_events_topic
        reader.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(3)])
        records, open_ = [], set(range(3))
        while open_:
            message = reader.poll(30)
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                open_.discard(message.partition())
                continue
            records.append(message)
        reader.close()
        return records

    def places(self, query_id):
        """Where the events are that a query has, in the order of each partition."""
        last = [
            origins(record.headers())[-1]
            for record in self.records()
            if record.key() == query_id.encode()
        ]
        return [(origin.partition, origin.offset) for origin in last]

    def until(self, query_id, places):
        deadline = time.monotonic() + SECONDS
        while sorted(there := self.places(query_id)) != sorted(places):
            assert time.monotonic() < deadline, (there, places)
            time.sleep(0.2)

    def send_until(self, condition, item="a"):
        """Sends events until a condition holds, and returns where they are."""
        places = []
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline
            places += self.send(2, item=item)
            time.sleep(0.2)
        return places

    def send_to(self, partition, count):
        sender = producer(self.config)
        for _ in range(count):
            event = {"item": "a", "price": 1, "at": "2026-05-01T00:00:00Z"}
            sender.produce(self.topic, json.dumps(event).encode(), partition=partition)
        assert sender.flush(30) == 0

    def committed(self):
        """The committed offsets, by partition."""
        group = f"headrace.{self.queries.matched_events_topic}.{self.topic}"
        sources = [TopicPartition(self.topic, p) for p in range(PARTITIONS)]
        return {at.partition: at.offset for at in committed(self.config, group, sources)}

    def commit(self, partition, offset):
        """Commits that an instance has looked at a partition up to an offset."""
        matched = MatchedTopic(
            self.queries, self.loaded.topics[self.topic], self.config, self.loaded.settings.site
        )
        source = TopicPartition(self.topic, partition)
        (position,) = committed_positions(matched, [source]).values()
        commit_positions(matched, {source: replace(position, offset=offset)})

    def send_again(self, partition, offset):
        """Sends the record of a matched event once more."""
        origin = Origin("here", self.topic, partition, offset)
        record = next(each for each in self.records() if origins(each.headers())[-1] == origin)
        sender = producer(self.config)
        place = {"topic": record.topic(), "partition": record.partition()}
        sender.produce(**place, key=record.key(), value=record.value(), headers=record.headers())
        assert sender.flush(30) == 0

    def balance(self):
        (balance,) = balance_matched_events(self.loaded, [self.queries])
        return balance

    def differences(self):
        """How many matched events are missing, and the number of the partition."""
        differences = self.balance().differences
        return {(each.number, int(each.partition.rpartition("/")[2])) for each in differences}

    def until_begun(self):
        """Waits until positions are committed: what comes from then on is looked at."""
        deadline = time.monotonic() + SECONDS
        while len(self.committed()) < PARTITIONS:
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def run(self, *words):
        command = (*HEADRACE, *words, "--json")
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    @contextmanager
    def running(self, end=signal.SIGTERM):
        process = subprocess.Popen(
            (*HEADRACE, "query", "emit", "--json"),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.send_signal(end)
            output, _ = process.communicate(timeout=SECONDS)
        if end == signal.SIGTERM:
            assert process.returncode == 0, output


@pytest.fixture
def project(tmp_path, monkeypatch, broker, topic):
    monkeypatch.setattr(sys, "path", list(sys.path))
    return EmitProject(tmp_path, broker, topic)


def test_events_that_match_are_sent_once_in_order_with_their_place(project):
    project.register("cheap", CHEAP)
    project.register("silent", CHEAP, emits=False)
    with project.running():
        project.until_begun()
        cheap = project.send(20)
        project.send(5, price=9)
        project.send(5, item="b")
        project.until("cheap", cheap)
    assert {record.key() for record in project.records()} == {b"cheap"}
    for partition in range(PARTITIONS):
        offsets = [offset for number, offset in project.places("cheap") if number == partition]
        assert offsets == sorted(offsets)
    record, *_ = project.records()
    headers = dict(record.headers())
    assert headers["headrace-query-revision"] == b"1"
    assert headers["headrace-registry-offset"] == b"2"
    assert json.loads(record.value())["item"] == "a"


def test_a_program_reads_the_events_of_one_query_or_of_all(project):
    project.register("cheap", CHEAP)
    project.register("all", ALL)
    program = Project(project.loaded)
    with project.running():
        project.until_begun()
        places = project.send(4)
        project.until("cheap", places)
        coming = program.matched_events("cheap", start="latest", follow=True)
        places += project.send(2, price=9)
        cheap = project.send(4)
        matched = list(itertools.islice(coming, 4))
        coming.close()
        project.until("all", [*places, *cheap])
    assert {event.origin for event in matched} == {
        Origin("here", project.topic, partition, offset) for partition, offset in cheap
    }
    assert {(event.query, event.revision, event.event["price"]) for event in matched} == {
        ("cheap", 1, 1)
    }
    counts = Counter(event.query for event in program.matched_events())
    assert counts == {"cheap": 8, "all": 10}
    assert len(list(program.matched_events("cheap"))) == 8
    assert matched[-1] in list(program.matched_events(start=matched[-1].sent_at))
    with pytest.raises(QueryMissingError):
        program.matched_events("chaep")


def test_a_second_process_is_refused_and_leaves_the_status_of_the_first_alone(project):
    project.register("cheap", CHEAP)
    with project.running():
        project.until_begun()
        refused = project.run("query", "emit")
        status = json.loads(project.run("status").stdout)
    assert (refused.returncode, "MATCHED_EVENTS_RUNNING" in refused.stdout) == (3, True)
    assert [instance["state"] for instance in status["matched_events"]] == ["running"]


def test_queries_come_and_go_and_each_event_is_sent_once(project):
    project.register("first", CHEAP)
    with project.running():
        project.until_begun()
        early = project.send(10)
        project.until("first", early)
        project.register("second", ALL)
        every = [*early, *project.send_until(lambda: project.places("second"))]
        every += project.send(10)
        project.until("first", every)
        project.cancel("first")
        every += project.send_until(
            lambda: len(project.places("first")) < len(project.places("second"))
        )
        last = project.send(1)
        every += last
        deadline = time.monotonic() + SECONDS
        while not set(last) <= set(second := project.places("second")):
            assert time.monotonic() < deadline
    # From one offset of each partition on, without a gap.
    for partition in range(PARTITIONS):
        have = [offset for number, offset in second if number == partition]
        assert have == list(range(have[0], have[-1] + 1))
    first = project.places("first")
    assert len(first) == len(set(first))
    assert set(first) < set(every)


def test_nothing_is_left_out_of_topics_that_grow_and_are_made_again(project):
    """An event as large as the topic allows has headers, too, when it is sent on."""
    project.register("all", ALL)
    with project.running():
        project.until_begun()
        places = project.send(1, item=random.Random(1).randbytes(520_000).hex())
        project.until("all", places)
    grow_topic(project.config, project.topic, PARTITIONS + 1)
    project.send_to(PARTITIONS, 3)
    places += [(PARTITIONS, offset) for offset in range(3)]
    with project.running():
        project.until("all", places)
    delete_topic(project.config, project.topic)
    make_topic(project.config, project.topic, PARTITIONS)
    project.sent = 0
    project.send(6)
    places += [(p, offset) for p in range(PARTITIONS) for offset in range(3)]
    with project.running():
        project.until("all", places)


def test_queries_that_change_often_leave_no_events_behind(project):
    """The position moves on, and a new query has no events of long ago."""
    project.register("rare", "SELECT count(*) FROM {topic} WHERE item = 'none'")
    with project.running():
        project.until_begun()
        project.send(40)
        deadline = time.monotonic() + SECONDS
        number = 0
        while sum(project.committed().values()) < project.sent // 2:
            assert time.monotonic() < deadline, project.committed()
            number += 1
            project.register(f"rare-{number}", "SELECT count(*) FROM {topic} WHERE item = 'none'")
            project.send(2)
            time.sleep(4)
        before = project.sent
        project.register("late", ALL)
        project.send_until(lambda: project.places("late"))
    assert all(offset * PARTITIONS + number >= before for number, offset in project.places("late"))


def test_a_process_that_is_killed_repeats_and_loses_nothing(project):
    project.register("cheap", CHEAP)
    with project.running(end=signal.SIGKILL):
        project.until_begun()
        places = project.send(51)
        project.until("cheap", places)
    places += project.send(10)
    with project.running():
        places += project.send(10)
        project.until("cheap", places)
        places += project.send(10)
        project.until("cheap", places)
    assert len(project.places("cheap")) == len(places)
    balance = project.balance()
    looked_at = sum(project.committed().values())
    assert (balance.state, balance.events) == ("balanced", looked_at)
    assert balance.matches == balance.in_topic == looked_at > len(places) - 10


def test_what_is_missing_or_too_many_is_told(project):
    """Positions are committed behind an event that was not sent, and another program sends one."""
    assert balance_matched_events(project.loaded, [project.queries]) == ()
    project.register("cheap", CHEAP)
    assert "has not looked at" in project.balance().unknown
    with project.running():
        project.until_begun()
        project.until("cheap", project.send(6))
    (status,) = json.loads(project.run("status").stdout)["matched_events"]
    looked_at = sum(project.committed().values())
    assert (status["read"], status["records"]) == (looked_at, 6)
    assert (project.balance().state, project.balance().matches) == ("balanced", looked_at)
    project.send(2)
    project.commit(0, offset=4)
    assert project.differences() == {(1, 0)}
    project.send_again(1, offset=1)
    assert project.differences() == {(1, 0), (-1, 1)}
    reconciled = project.run("reconcile", project.name, "--recount")
    assert reconciled.returncode == 6
    (told,) = json.loads(reconciled.stdout)["matched_events"]
    assert (told["topic"], told["state"]) == (project.topic, "unbalanced")


def test_events_count_since_the_queries_have_changed_last(project):
    project.register("first", CHEAP)
    with project.running():
        project.until_begun()
        places = project.send(4)
        project.until("first", places)
        project.register("second", ALL)
        places += project.send_until(lambda: project.places("second"), item="b")
        later = project.send(20)
        project.until("first", [*places[:4], *later])
    balance = project.balance()
    seen = len(project.places("second"))
    assert balance.state == "balanced", balance
    assert seen - PARTITIONS <= balance.events <= seen
    assert balance.matches == balance.in_topic >= balance.events + 20 - PARTITIONS
