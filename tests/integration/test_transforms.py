"""The transforms that headrace ships, held against the contract of transforms."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from tests.contracts.transform import TransformCase, TransformContract
from tests.integration.flow import NOW_MS, Flow, click

from headrace import Lake, Source, count_windows, deduplicate
from headrace.pipelines.progress import PipelineState

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
START_MS = NOW_MS // HOUR_MS * HOUR_MS - 6 * HOUR_MS


def at(n, minutes, **changes):
    return click(n, event_time=START_MS + int(minutes * MINUTE_MS), **changes)


class TestDeduplicate(TransformContract):
    @pytest.fixture
    def case(self):
        return TransformCase(
            step=deduplicate(by=["event_id"], within=timedelta(minutes=30)),
            runs=[[at(0, 0), at(1, 1), at(0, 2)], [at(1, 5), at(2, 6)]],
            columns=["event_id"],
            rows={("e0",): 1, ("e1",): 1, ("e2",): 1},
            figures={"deduplicate_state_rows": 3, "deduplicate_null_key_rows": 0},
            late=at(3, -60),
        )


class TestDeduplicateByNulls(TransformContract):
    """Rows with a null key are rows of their own, also where they are equal in all columns."""

    @pytest.fixture
    def case(self):
        nulls = [at(3, 5, price=None), at(3, 5, price=None)]
        return TransformCase(
            step=deduplicate(by=["category", "price"], within=timedelta(minutes=30)),
            runs=[[at(0, 0), at(3, 1, price=None)], [at(0, 5), *nulls]],
            columns=["event_id"],
            rows={("e0",): 1, ("e3",): 3},
            figures={"deduplicate_state_rows": 4, "deduplicate_null_key_rows": 2},
            late=at(3, -60, price=None),
        )


def test_a_repeat_is_dropped_until_the_watermark_has_passed_its_first_by_within(
    broker, spark, tmp_path
):
    flow = Flow(broker, spark, tmp_path, partitions=1)
    source = Source(flow.topic, watermark=timedelta(minutes=1))
    steps = [deduplicate(by=["event_id"], within=timedelta(minutes=30))]
    pipeline = flow.pipeline("unique", source=source, sink=Lake("unique"), steps=steps)
    runs = [
        [at(0, 0), at(1, 29)],  # the watermark is 28: newer than the delay of the source allows
        [at(0, 29.5), at(2, 31.5)],  # the watermark passes 30 at the end of this run
        [at(0, 31.6), at(2, 31.6)],
    ]
    kept = []
    for events in runs:
        flow.send(events)
        outcome = flow.run(pipeline)["unique"]
        assert outcome.state is PipelineState.FINISHED, outcome.reason
        kept.append((flow.ids("unique")["e0"], outcome.duplicate_rows))
    assert kept == [(1, 0), (1, 1), (2, 1)]


def test_the_state_of_two_transforms_of_a_kind_is_added_up(broker, spark, tmp_path):
    flow = Flow(broker, spark, tmp_path, partitions=1)
    names = ("event_id", "category")
    steps = [deduplicate(by=[name], within=timedelta(minutes=30)) for name in names]
    flow.send([at(0, 0), at(1, 1), at(3, 2)])
    outcome = flow.run(flow.pipeline("unique", sink=Lake("unique"), steps=steps))["unique"]
    assert outcome.state is PipelineState.FINISHED, outcome.reason
    assert Counter(row["category"] for row in flow.rows("unique")) == {"c0": 1, "c1": 1}
    assert outcome.figures["deduplicate_state_rows"] == 3 + 2


class TestCountWindows(TransformContract):
    @pytest.fixture
    def case(self):
        start = datetime.fromtimestamp(START_MS / 1000, UTC)
        return TransformCase(
            step=count_windows(timedelta(minutes=10), ["category"], within=timedelta(0)),
            runs=[[at(0, 1), at(1, 2)], [at(3, 3), at(4, 25)]],
            columns=["window_start", "category", "count"],
            rows={(start, "c0", 2): 1, (start, "c1", 1): 1},
            figures={"count_windows_state_rows": 1},
            late=at(6, 4),
        )
