"""Pipelines write topics exactly once, while their driver is killed.

Readers of committed records must see each event once.
"""

import json
import uuid
from collections import Counter

import pytest
from tests.acceptance.project import EVENTS, Project

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


def new_project(folder, bootstrap, batch):
    name = f"drill-{uuid.uuid4().hex[:8]}"
    flow = FLOW.replace("{copies}", name)
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
