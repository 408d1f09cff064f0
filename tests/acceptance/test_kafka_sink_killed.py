"""Pipelines write topics exactly once, while their driver and the brokers are killed and frozen.

Readers of committed records must see each event once, and the positions in the topic must be those
of the source's end.
"""

import json
import threading
import time
import uuid
from collections import Counter

import pytest
from tests.acceptance.project import EVENTS, Project, kill_session
from tests.waiting import DRILL_LIMIT_SECONDS, LIMIT_SECONDS, wait_for_drill

from headrace.kafka.client.admin_requests import admin
from headrace.kafka.table.topic_table import table_records

FLOW = (
    EVENTS
    + """
from headrace import Guarantee, Kafka


class Doubled(Event):
    double: int


fused_copy = Topic("{copies}.fused", event=Event, key="event_id", partitions=4)
stepped_copy = Topic("{copies}.stepped", event=Doubled, key="event_id", partitions=4)
fused = Pipeline(
    "fused", events, Kafka(fused_copy, guarantee=Guarantee.EXACTLY_ONCE), limits=limits
)
stepped = Pipeline(
    "stepped",
    events,
    Kafka(stepped_copy, guarantee=Guarantee.EXACTLY_ONCE),
    steps=[
        doubled,
        lambda rows: rows.select("event_id", "event_time", "category", "n", "double"),
    ],
    limits=limits,
)
"""
)
PIPELINES = ("fused", "stepped")
NODES = (1, 2, 3)


def new_project(folder, bootstrap, batch, replication=1):
    name = f"drill-{uuid.uuid4().hex[:8]}"
    flow = FLOW.replace("{copies}", name)
    flow = flow.replace("partitions=4)", f"partitions=4, replication={replication})")
    project = Project(folder, bootstrap, topic=name, batch=batch, flow=flow)
    project.call("apply")
    return project


def committed_ids(project, pipeline):
    """Event ids of the committed records of a pipeline's topic."""
    records = table_records(project.client, f"{project.topic}.{pipeline}", settled=True)
    return Counter(json.loads(record.value())["event_id"] for record in records)


def assert_sent_once(project, events):
    expected = Counter(f"e{n}" for n in range(events))
    for pipeline in PIPELINES:
        assert committed_ids(project, pipeline) == expected
        assert project.committed(pipeline) == project.ends()


@pytest.mark.drill(always=True)
@pytest.mark.timeout(1500)
def test_kills_of_the_driver_leave_each_event_in_the_topic_once(broker, tmp_path, drill_run):
    events = drill_run.size(short=12_000, long=200_000)
    kills = drill_run.size(short=1, long=10)
    batch = drill_run.size(short=1_000, long=5_000)
    project = new_project(tmp_path / "drill", broker.bootstrap_servers, batch)
    project.send(0, events)
    for _ in range(kills):
        project.kill_a_run(drill_run.random)
        for pipeline in PIPELINES:
            assert set(committed_ids(project, pipeline).values()) <= {1}
    project.call("run", "--once")
    assert_sent_once(project, events)
    drill_run.report(events=events, kills=kills)


class Faults:
    """Kills or freezes a broker, and at times the driver; then all are there again.

    Each broker leads partitions of the topics, and one coordinates the transactions of a pipeline:
    whichever it is, transactions need it while it is missing.
    """

    def __init__(self, cluster, project, moments):
        self._cluster, self._project, self._moments = cluster, project, moments
        self.done = []
        self.run = project.start("run")

    def happen(self, seconds):
        number = len(self.done)
        node = self._moments.randrange(len(NODES)) + 1
        ways = (
            (self._cluster.kill, self._cluster.start_broker),
            (self._cluster.pause, self._cluster.resume),
        )
        fail, come_back = ways[number % 2]
        fail(node)
        self.done.append(f"{fail.__name__} {node}")
        time.sleep(seconds / 2)
        if number % 3 == 1:
            kill_session(self.run)
            self.run = self._project.start("run")
            self.done[-1] += " and the driver"
        time.sleep(seconds / 2)
        come_back(node)
        wait_for_drill(self._all_in_sync, "every copy in sync")
        sent = self._seen()
        wait_for_drill(lambda: self._seen() > sent, self._project.output)

    def _seen(self):
        return min(committed_ids(self._project, pipeline).total() for pipeline in PIPELINES)

    def _all_in_sync(self):
        topics = admin(self._project.client).list_topics(timeout=LIMIT_SECONDS).topics
        partitions = topics[self._project.topic].partitions.values()
        return all(set(partition.isrs) == set(NODES) for partition in partitions)


@pytest.mark.drill
@pytest.mark.timeout(3000)
def test_brokers_that_are_killed_and_frozen_leave_each_event_in_the_topic_once(
    start_cluster, tmp_path, drill_run
):
    faults_planned = drill_run.size(short=3, long=20)
    batch = drill_run.size(short=500, long=2_000)
    part = drill_run.size(short=2_000, long=20_000)
    moments = drill_run.random
    three = start_cluster(brokers=3)
    project = new_project(tmp_path / "drill", three.bootstrap_servers, batch, len(NODES))
    stopping, sent = threading.Event(), []

    def send():
        while not stopping.wait(1.0):
            project.send(part * len(sent), part)
            sent.append(part)

    sender = threading.Thread(target=send)
    faults = Faults(three.cluster, project, moments)
    try:
        sender.start()
        wait_for_drill(lambda: all(committed_ids(project, p) for p in PIPELINES), project.output)
        for _ in range(faults_planned):
            # Longer than a transaction may last: the brokers abort it.
            faults.happen(moments.choice((2.0, 8.0, drill_run.size(short=8.0, long=75.0))))
        stopping.set()
        sender.join(DRILL_LIMIT_SECONDS)
        assert not sender.is_alive()
        faults.run.terminate()
        assert faults.run.wait(DRILL_LIMIT_SECONDS) == 0, project.output()
        project.send(part * len(sent), part)  # a batch after the last fault commits all offsets
        sent.append(part)
        project.call("run", "--once")
        assert_sent_once(project, sum(sent))
    finally:
        stopping.set()
        kill_session(faults.run)
        drill_run.report(events=sum(sent), faults=", ".join(faults.done))
