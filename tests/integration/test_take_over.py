"""Pipelines on a machine that lacks their checkpoint: without state they go on from the table."""

from datetime import timedelta

import pytest
from tests.integration.flow import Flow, click
from tests.integration.test_lake_s3 import OnS3

from headrace import LateData, deduplicate
from headrace.pipelines.start.state_operators import keeps_state
from headrace.service.status import State


def once(count):
    return {f"e{n}": 1 for n in range(count)}


def test_on_s3_every_run_may_be_on_another_machine(s3, broker, spark, tmp_path):
    """Checkpoints are below the project's folder there: each run has a new one."""
    flow = OnS3(s3, broker, spark, tmp_path)
    pipelines = flow.pipeline(), flow.stepped()
    for number in range(3):
        flow.folder = tmp_path / f"machine {number}"
        flow.send([click(n) for n in range(number * 100, number * 100 + 100)] + [b"not json"])
        outcomes = flow.run(*pipelines)
        assert {outcome.state for outcome in outcomes.values()} == {State.FINISHED}
    assert [flow.ids(pipeline.name) for pipeline in pipelines] == [once(300)] * 2
    assert len(flow.dead()) == 6


def test_state_of_steps_and_event_clocks_need_their_checkpoint(broker, spark, tmp_path):
    flow = Flow(broker, spark, tmp_path)
    unique = deduplicate(by=["event_id"], within=timedelta(hours=1))
    pipelines = (
        flow.pipeline("unique", steps=[unique]),
        flow.pipeline("punctual", late_data=LateData.DEAD_LETTER),
    )
    flow.send([click(0)])
    flow.run(*pipelines)
    for pipeline in pipelines:
        (flow.checkpoint(pipeline.name).parent / "current.json").unlink()
    outcomes = flow.run(*pipelines)
    assert {outcome.state for outcome in outcomes.values()} == {State.REFUSED}
    assert all("--to table" in outcome.reason for outcome in outcomes.values())
    assert [flow.ids(pipeline.name) for pipeline in pipelines] == [once(1)] * 2


@pytest.fixture
def rows(spark):
    return spark.readStream.format("rate").load()


def test_operators_that_take_each_row_by_itself_keep_no_state(spark, rows):
    table = spark.createDataFrame([(1, "one")], "value long, name string")
    assert not keeps_state(rows.where("value > 1").selectExpr("value + 1 AS value"))
    assert not keeps_state(rows.withWatermark("timestamp", "1 minute").union(rows))
    assert not keeps_state(rows.join(table, "value", "left").repartition(2, "value"))
    assert not keeps_state(rows.mapInArrow(lambda batches: batches, rows.schema))
    assert not keeps_state(rows.selectExpr("value", "explode(array(1, 2)) AS part"))


def test_windows_distinct_rows_and_joins_of_streams_keep_state(rows):
    late = rows.withWatermark("timestamp", "1 minute")
    assert keeps_state(rows.groupBy("value").count())
    assert keeps_state(late.dropDuplicatesWithinWatermark(["value"]))
    assert keeps_state(rows.distinct().where("value > 1"))
    assert keeps_state(late.join(late, "value"))
    assert keeps_state(rows.limit(1))
