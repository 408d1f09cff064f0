"""``enrich`` on the real broker and Spark: which record of the reference a row gets, and when."""

import json
import uuid
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.contracts.transform import TransformCase, TransformContract
from tests.integration.flow import NOW_MS, Click, Flow, click, with_double
from tests.integration.test_sinks import records

from headrace import BatchLimits, Kafka, Lake, Source, Topic, deduplicate, enrich
from headrace.errors import TopicMissingError
from headrace.kafka.client.admin_requests import admin
from headrace.service.status import State

KEPT = {"min.compaction.lag.ms": "86400000"}


class Campaign:
    name: str
    budget: int | None


class Enriched(Click):
    campaign_name: str | None


class Reference:
    """A reference topic of two partitions, and the step that looks values up in it."""

    def __init__(self, flow, by="category"):
        self.flow = flow
        self.topic = Topic(
            f"campaigns-{uuid.uuid4().hex[:8]}",
            event=Campaign,
            partitions=2,
            compaction=True,
            config=KEPT,
        )
        flow.create(self.topic.name, 2)
        self.step = enrich(self.topic, by=by, columns=["name"], prefix="campaign_")

    def put(self, **names):
        values = [name and json.dumps({"name": name}).encode() for name in names.values()]
        self.flow.send(values, topic=self.topic.name, keys=[key.encode() for key in names])

    def delete(self):
        for future in admin(self.flow.client).delete_topics([self.topic.name]).values():
            future.result()


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path, partitions=1)


@pytest.fixture
def reference(flow):
    reference = Reference(flow)
    reference.put(c0="zero", c1="one")
    return reference


def finished(flow, pipeline):
    outcome = flow.run(pipeline)[pipeline.name]
    assert outcome.state is State.FINISHED, outcome.reason
    return outcome


def events(flow, topic):
    return [json.loads(record.value()) for record in records(flow.client, topic)]


def names(flow, table="enriched"):
    return {row["event_id"]: row["campaign_name"] for row in flow.rows(table)}


class TestEnrich(TransformContract):
    @pytest.fixture
    def case(self, reference):
        return TransformCase(
            step=reference.step,
            runs=[[click(0), click(1), click(2)], [click(4), click(5), click(5)]],
            columns=["event_id", "category", "campaign_name"],
            rows={
                ("e0", "c0", "zero"): 1,
                ("e1", "c1", "one"): 1,
                ("e2", "c2", None): 1,
                ("e4", "c1", "one"): 1,
                ("e5", "c2", None): 2,
            },
            figures={"enrich_unmatched_rows": 2},
        )


def test_each_batch_sees_what_was_in_the_topic_when_it_was_planned(flow, reference):
    pipeline = flow.pipeline("enriched", sink=Lake("enriched"), steps=[reference.step])
    flow.send([click(0), click(1)])
    finished(flow, pipeline)
    reference.put(c0="new", c1=None, c2="two")
    flow.send([click(n) for n in (3, 4, 5)])
    assert finished(flow, pipeline).figures["enrich_unmatched_rows"] == 1
    assert names(flow) == {"e0": "zero", "e1": "one", "e3": "new", "e4": None, "e5": "two"}


def test_a_batch_that_is_repeated_looks_up_where_it_did_before(flow, reference):
    target = Topic(f"enriched-{uuid.uuid4().hex[:8]}", event=Enriched)
    flow.create(target.name, 1)
    pipeline = flow.pipeline("enriched", sink=Kafka(target), steps=[reference.step])
    flow.send([click(0), click(1)])
    finished(flow, pipeline)
    reference.put(c0="new", c1=None)
    flow.forget_newest_commit("enriched")
    flow.send([click(3)])
    finished(flow, pipeline)
    written = Counter(
        (event["event_id"], event["campaign_name"]) for event in events(flow, target.name)
    )
    assert written == {("e0", "zero"): 2, ("e1", "one"): 2, ("e3", "new"): 1}


def test_a_batch_that_was_planned_before_the_step_was_added_is_enriched(flow, reference):
    target = Topic(f"enriched-{uuid.uuid4().hex[:8]}", event=Enriched)
    flow.create(target.name, 1)
    pipeline = flow.pipeline("enriched", sink=Kafka(target), steps=[without_name])
    flow.send([click(0)])
    finished(flow, pipeline)
    flow.forget_newest_commit("enriched")
    finished(flow, replace(pipeline, steps=[reference.step]))
    assert [event["campaign_name"] for event in events(flow, target.name)] == [None, "zero"]


def test_several_batches_and_tasks_of_a_run_look_up_the_same(flow, reference):
    source = Source(flow.topic, min_tasks=3)
    limits = BatchLimits(max_records=40)
    pipeline = flow.pipeline(
        "enriched", source=source, sink=Lake("enriched"), steps=[reference.step], limits=limits
    )
    flow.send([click(n) for n in range(100)])
    assert finished(flow, pipeline).batches >= 3
    campaigns = ("zero", "one", None)
    assert names(flow) == {f"e{n}": campaigns[n % 3] for n in range(100)}


def test_the_key_of_a_number_is_its_text_and_a_null_matches_nothing(flow):
    reference = Reference(flow, by="n")
    reference.put(**{"7": "seven"})
    steps = [replace(reference.step, by="price", prefix="price_"), reference.step]
    pipeline = flow.pipeline("enriched", sink=Lake("enriched"), steps=steps)
    flow.send([click(7, price=None), click(8)])
    assert finished(flow, pipeline).figures["enrich_unmatched_rows"] == 2 + 1
    assert names(flow) == {"e7": "seven", "e8": None}


def test_watermarks_and_steps_with_state_go_on_behind_it(flow, reference):
    steps = [with_double, reference.step, deduplicate(["event_id"], timedelta(hours=1))]
    source = Source(flow.topic, watermark=timedelta(minutes=1))
    pipeline = flow.pipeline("enriched", source=source, sink=Lake("enriched"), steps=steps)
    flow.send([click(0), click(1)])
    finished(flow, pipeline)
    flow.send([click(1), click(2), click(3, event_time=NOW_MS - 36_000_000)])
    outcome = finished(flow, pipeline)
    assert (outcome.duplicate_rows, outcome.behind_watermark_rows) == (1, 1)
    assert names(flow) == {"e0": "zero", "e1": "one", "e2": None}


def test_a_reference_that_is_not_there_refuses_the_start(flow, reference):
    reference.delete()
    flow.send([click(0)])
    pipeline = flow.pipeline("enriched", sink=Lake("enriched"), steps=[reference.step])
    outcome = flow.run(pipeline)["enriched"]
    assert outcome.state is State.REFUSED
    assert outcome.reason.startswith(str(TopicMissingError(reference.topic.name)))


def test_a_table_that_is_too_large_fails_the_pipeline_without_a_restart(flow, reference):
    step = replace(reference.step, max_bytes=10)
    flow.send([click(0)])
    outcome = flow.run(flow.pipeline("enriched", sink=Lake("enriched"), steps=[step]))["enriched"]
    assert (outcome.state, outcome.restarts) == (State.FAILED, 0)
    assert reference.topic.name in outcome.reason
    assert "max_bytes" in outcome.reason


def without_name(rows):
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn("campaign_name", F.lit(None).cast("string"))
