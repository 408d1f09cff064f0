"""What ``check`` refuses of envelopes, each with the value that is wrong."""

from dataclasses import dataclass, replace
from datetime import datetime

import pytest

from headrace import (
    ArrayEnvelope,
    Avro,
    ByField,
    Dispatcher,
    Home,
    Join,
    Kafka,
    Lake,
    LinesEnvelope,
    MatchQueries,
    Metadata,
    ObjectEnvelope,
    Pipeline,
    Source,
    StandingQueries,
    Topic,
    Worker,
    enrich,
)
from headrace.links.dispatcher.rules import dispatcher_faults
from headrace.model.envelope import Envelope
from headrace.pipelines.rules import pipeline_faults
from headrace.settings.model import Settings
from headrace.topics.rules import topic_faults
from headrace.workers.rules import worker_faults


@dataclass
class View:
    id: str
    at: datetime
    host: str


TOPIC = Topic("batches", View, event_time="at", envelope=ArrayEnvelope())
VIEWS = Topic("views", View, key="id", event_id="id", event_time="at")
PLACE = (Metadata.TOPIC, Metadata.PARTITION, Metadata.OFFSET)


@pytest.fixture
def settings(tmp_path):
    return Settings(root=tmp_path, name="p", modules=(), lake=str(tmp_path))


def objects(**changes):
    return {"envelope": ObjectEnvelope(**changes)}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"envelope": None},
        {"envelope": LinesEnvelope(max_bytes=1, max_events=1)},
        {"event_id": "id"},
        {"event": None, "event_time": None},
        objects(events="payload.events", copied={"host": "agent.host"}),
    ],
)
def test_a_topic_without_faults_is_taken(changes, settings):
    assert list(topic_faults(replace(TOPIC, **changes), settings)) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"envelope": "array"}, "envelope is 'array'"),
        ({"envelope": Envelope()}, "envelope is Envelope("),
        ({"envelope": ArrayEnvelope(max_bytes=0)}, "ArrayEnvelope.max_bytes is 0"),
        ({"envelope": ArrayEnvelope(max_events=True)}, "ArrayEnvelope.max_events is True"),
        (objects(events=""), "'' is no path"),
        (objects(events="a..b"), "'a..b' is no path"),
        (objects(events=None), "None is no path"),
        (objects(copied=["host"]), "copied is ['host']"),
        (objects(copied={"host": "events.host"}), "'events.host' is in 'events'"),
        (objects(copied={"host": "a", "id": "a.b"}), "'a.b' is in 'a'"),
        (objects(copied={"agent": "agent"}), "copies 'agent', not a field of View"),
        ({"format": Avro()}, "envelope of Avro() events"),
        ({"key": "id"}, "key is about single events"),
        ({"compaction": True}, "compaction is about single events"),
        ({"spool": True}, "spool is about single events"),
        ({"partitioning": ByField("id")}, "partitioning is by fields"),
    ],
)
def test_what_an_envelope_can_not_be(changes, text, settings):
    messages = [fault.message for fault in topic_faults(replace(TOPIC, **changes), settings)]
    assert any(text in message for message in messages), messages


@pytest.mark.parametrize(
    "pipeline",
    [
        Pipeline("p", TOPIC, Kafka(VIEWS)),
        Pipeline("p", TOPIC, Lake("views")),
        Pipeline("p", Source(TOPIC, metadata=(*PLACE, Metadata.EVENT_INDEX)), Lake("views")),
        Pipeline("p", Source(VIEWS, metadata=PLACE), Lake("views")),
    ],
)
def test_a_pipeline_without_faults_is_taken(pipeline):
    assert list(pipeline_faults(pipeline)) == []


@pytest.mark.parametrize(
    ("pipeline", "text"),
    [
        (Pipeline("p", VIEWS, Kafka(TOPIC)), "writes single events to topic 'batches'"),
        (
            Pipeline("p", TOPIC, MatchQueries(StandingQueries("q"))),
            "identifies rows by their offset, in topic 'batches'",
        ),
        (
            Pipeline("p", Source(TOPIC, metadata=PLACE), Lake("views")),
            "events of an envelope of topic 'batches' have the same _offset",
        ),
        (
            Pipeline("p", Join(VIEWS, TOPIC, on=("id", "id"), column="other"), Lake("views")),
            "the Join of pipeline 'p' reads topic 'batches'",
        ),
        (
            Pipeline("p", VIEWS, Lake("v"), steps=[enrich(TOPIC, by="id", columns=["host"])]),
            "looks values up in topic 'batches'",
        ),
    ],
)
def test_what_a_pipeline_can_not_do_with_envelopes(pipeline, text):
    messages = [fault.message for fault in pipeline_faults(pipeline)]
    assert any(text in message for message in messages), messages


def test_event_indices_are_columns_only_where_records_are_envelopes():
    single, parse = (Pipeline("p", topic, Kafka(VIEWS)) for topic in (VIEWS, TOPIC))
    assert single.metadata(single.sources[0]) == PLACE
    assert parse.metadata(parse.sources[0]) == (*PLACE, Metadata.EVENT_INDEX)


def test_a_worker_can_not_read_envelopes():
    messages = [fault.message for fault in worker_faults(Worker("w", TOPIC, task=print))]
    assert "worker 'w' reads topic 'batches', whose records are envelopes" in messages


def test_a_dispatcher_finds_no_home_in_an_envelope(settings):
    dispatcher = Dispatcher("d", TOPIC, {"b": "batches"}, home=Home("host", {"x": "b"}))
    messages = [fault.message for fault in dispatcher_faults(dispatcher, settings)]
    assert any("whose records are envelopes" in message for message in messages)
