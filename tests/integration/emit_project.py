"""A project whose matched events are sent on, on the shared broker."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from contextlib import contextmanager
from dataclasses import replace

import confluent_kafka
from tests.in_process import answer
from tests.integration import instance_thread
from tests.kafka_topics import make_topic
from tests.registered import cancel_query, register_query
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace import Origin, StandingQueries
from headrace.kafka.client.clients import client_config, connected_producer, consumer
from headrace.kafka.client.offsets import committed
from headrace.kafka.origin import origins
from headrace.model import TopicPartition
from headrace.project.check import load_project
from headrace.queries.books import matched_events_books
from headrace.queries.emit.plan import EmitterPlan
from headrace.queries.emit.positions import (
    commit_positions,
    committed_positions,
)
from headrace.queries.emit.run import matched_events_run
from headrace.queries.topics import ensure_query_topics
from headrace.service.run import RunOptions
from headrace.settings import KafkaSettings, load_settings

HEADRACE = (sys.executable, "-m", "headrace.cli")
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

    def __init__(self, folder, broker, names, partitions=PARTITIONS):
        self.partitions = partitions
        self.config = client_config(KafkaSettings(), broker.bootstrap_servers)
        self.topic, self.name, self.folder = names("clicks"), names("ads"), folder
        self._servers = broker.bootstrap_servers
        self.declare(FLOW)
        make_topic(self.config, self.topic, partitions)
        ensure_query_topics(self.config, self.queries)
        self.sent = 0

    def declare(self, flow):
        """Declares topic, queries and pipeline."""
        module = f"flow_{uuid.uuid4().hex[:8]}"  # Python would not import a second one of a name
        (self.folder / "headrace.toml").write_text(
            f'[project]\nname = "emitted"\nsite = "here"\nmodules = ["{module}"]\n\n'
            f'[kafka]\nbootstrap_servers = "{self._servers}"\n'
            '[spark.config]\n"spark.driver.memory" = "512m"\n'
        )
        flow = flow.format(topic=self.topic, name=self.name, partitions=self.partitions)
        (self.folder / f"{module}.py").write_text(flow)
        self.loaded = load_project(load_settings(self.folder, {}))
        self.queries = self.loaded.declared(StandingQueries)[self.name]

    def register(self, query_id, text, *, emits=True):
        text = text.format(topic=f'"{self.topic}"')
        text += "\nMATCHED EVENTS EMIT" if emits else ""
        return register_query(self.loaded, text, query_id=query_id)

    def cancel(self, query_id):
        cancel_query(self.loaded, query_id)

    def send(self, count, item="a", price=1):
        """Sends events to the partitions in turn; returns their places."""
        sender = connected_producer(self.config)
        places = []
        for number in range(self.sent, self.sent + count):
            event = {"item": item, "price": price, "at": "2026-05-01T00:00:00Z"}
            offset, partition = divmod(number, self.partitions)
            sender.produce(self.topic, json.dumps(event).encode(), partition=partition)
            places.append((partition, offset))
        assert sender.flush(FLUSH_SECONDS) == 0
        self.sent += count
        return places

    def records(self):
        """The records of the topic of matched events, by partition, in their order."""
        reader = consumer(self.config)
        topic = self.queries.matched_events_topic
        reader.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(3)])
        records, open_ = [], set(range(3))
        while open_:
            message = reader.poll(LIMIT_SECONDS)
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
        wait_for(
            lambda: sorted(self.places(query_id)) == sorted(places),
            lambda: f"{places}; there are {self.places(query_id)}",
        )

    def send_until(self, condition, item="a"):
        """Sends events until a condition holds, and returns where they are."""
        places = []

        wait_for(lambda: condition() or places.extend(self.send(2, item=item)))
        return places

    def send_to(self, partition, count):
        sender = connected_producer(self.config)
        for _ in range(count):
            event = {"item": "a", "price": 1, "at": "2026-05-01T00:00:00Z"}
            sender.produce(self.topic, json.dumps(event).encode(), partition=partition)
        assert sender.flush(FLUSH_SECONDS) == 0

    def committed(self):
        """The committed offsets, by partition."""
        group = f"headrace.{self.queries.matched_events_topic}.{self.topic}"
        return {at.partition: at.offset for at in committed(self.config, group, self.sources)}

    @property
    def sources(self):
        """The partitions of the topic of events."""
        return [TopicPartition(self.topic, p) for p in range(self.partitions)]

    @property
    def matched(self):
        """The topic of events, with the standing queries."""
        site = self.loaded.settings.site
        return EmitterPlan(self.queries, self.loaded.topics[self.topic], self.config, site)

    def commit(self, partition, offset):
        """Commits that an instance has looked at a partition up to an offset."""
        source = TopicPartition(self.topic, partition)
        (position,) = committed_positions(self.matched, [source]).values()
        commit_positions(self.matched, {source: replace(position, offset=offset)})

    def send_again(self, partition, offset):
        """Sends the record of a matched event once more."""
        origin = Origin("here", self.topic, partition, offset)
        record = next(each for each in self.records() if origins(each.headers())[-1] == origin)
        sender = connected_producer(self.config)
        place = {"topic": record.topic(), "partition": record.partition()}
        sender.produce(**place, key=record.key(), value=record.value(), headers=record.headers())
        assert sender.flush(FLUSH_SECONDS) == 0

    def balance(self):
        (balance,) = matched_events_books(self.loaded, self.queries)
        return balance

    def differences(self):
        """How many matched events are missing, and the number of the partition."""
        differences = self.balance().differences
        return {(each.number, int(each.partition.rpartition("/")[2])) for each in differences}

    def until_begun(self):
        """Waits until positions are committed: what comes from then on is looked at."""
        wait_for(lambda: len(self.committed()) >= self.partitions, self.committed)

    def run(self, *words, exit_code=0):
        """What a command answers in JSON; `status` and `reconcile` need no Spark here."""
        return answer(*words, "--project", self.folder, code=exit_code)

    def running(self, exit_codes=(0,)):
        """Sends matched events in this process, on the Spark of the tests."""
        run = matched_events_run(self.loaded, self.queries, None, RunOptions())
        return instance_thread.running(run, exit_codes)

    @contextmanager
    def running_process(self, end, exit_code):
        """Sends them as users do, in a process with its own Spark."""
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
            output, _ = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == exit_code, output
