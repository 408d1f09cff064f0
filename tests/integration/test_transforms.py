"""The transforms that headrace ships, held against the contract of transforms."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from tests.contracts.names import FOLDERS
from tests.contracts.transform import TimedTransformContract, TransformCase, TransformContract
from tests.integration.flow import NOW_MS, Flow, click

from headrace import Lake, Source, classify, count_windows, deduplicate, fan_out, filter_rows
from headrace.service.status import State

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
START_MS = NOW_MS // HOUR_MS * HOUR_MS - 6 * HOUR_MS


def at(n, minutes, **changes):
    return click(n, event_time=START_MS + int(minutes * MINUTE_MS), **changes)


class TestDeduplicate(TimedTransformContract):
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


class TestDeduplicateByNulls(TimedTransformContract):
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
        assert outcome.state is State.FINISHED, outcome.reason
        kept.append((flow.ids("unique")["e0"], outcome.duplicate_rows))
    assert kept == [(1, 0), (1, 1), (2, 1)]


def renamed(rows):
    for old, new in {"event_id": "a.b", "category": "`c` 50%"}.items():
        rows = rows.withColumnRenamed(old, new)
    return rows


def test_columns_lakes_and_checkpoints_have_any_name(broker, spark, tmp_path):
    flow = Flow(broker, spark, tmp_path.joinpath(*FOLDERS), partitions=1)
    unique = deduplicate(by=["a.b", "`c` 50%"], within=timedelta(minutes=30))
    counted = count_windows(timedelta(hours=1), ["`c` 50%"], within=timedelta(milliseconds=1))
    flow.send([at(0, 0), at(1, 1), at(0, 2), at(2, 120)])
    outcomes = flow.run(
        flow.pipeline("unique", sink=Lake("unique", ("`c` 50%",)), steps=[renamed, unique]),
        flow.pipeline("counted", sink=Lake("counted"), steps=[renamed, counted]),
    )
    assert {each.state for each in outcomes.values()} == {State.FINISHED}, outcomes
    rows = sorted((row["a.b"], row["`c` 50%"]) for row in flow.rows("unique"))
    assert rows == [("e0", "c0"), ("e1", "c1"), ("e2", "c2")]


def test_rows_without_an_event_time_are_all_kept(broker, spark, tmp_path):
    def seen(rows):
        from pyspark.sql import functions as F  # noqa: N812

        return rows.withColumn("seen", F.when(F.col("event_id") == "e0", F.col("event_time")))

    flow = Flow(broker, spark, tmp_path, partitions=1)
    unique = deduplicate(by=["event_id"], within=timedelta(minutes=30), event_time="seen")
    flow.send([at(n, minute) for n in (0, 1) for minute in (0, 5, 10)])
    outcome = flow.run(flow.pipeline("unique", sink=Lake("unique"), steps=[seen, unique]))["unique"]
    assert outcome.state is State.FINISHED, outcome.reason
    assert flow.ids("unique") == {"e0": 1, "e1": 3}
    assert outcome.figures["deduplicate_null_key_rows"] == 3


def test_the_state_of_two_transforms_of_a_kind_is_added_up(broker, spark, tmp_path):
    flow = Flow(broker, spark, tmp_path, partitions=1)
    names = ("event_id", "category")
    steps = [deduplicate(by=[name], within=timedelta(minutes=30)) for name in names]
    flow.send([at(0, 0), at(1, 1), at(3, 2)])
    outcome = flow.run(flow.pipeline("unique", sink=Lake("unique"), steps=steps))["unique"]
    assert outcome.state is State.FINISHED, outcome.reason
    assert Counter(row["category"] for row in flow.rows("unique")) == {"c0": 1, "c1": 1}
    assert outcome.figures["deduplicate_state_rows"] == 3 + 2


class TestCountWindows(TimedTransformContract):
    @pytest.fixture
    def case(self):
        start = datetime.fromtimestamp(START_MS / 1000, UTC)
        return TransformCase(
            step=count_windows(
                timedelta(minutes=10), ["category"], within=timedelta(milliseconds=1)
            ),
            runs=[[at(0, 1), at(1, 2)], [at(3, 3), at(4, 25)]],
            columns=["window_start", "category", "count"],
            rows={(start, "c0", 2): 1, (start, "c1", 1): 1},
            figures={"count_windows_state_rows": 1, "count_windows_null_time_rows": 0},
            late=at(6, 4),
        )


class TestFilterRows(TransformContract):
    """The first true condition is the reason; a row with a null condition only is kept."""

    @pytest.fixture
    def case(self):
        return TransformCase(
            step=filter_rows(drop={"cheap": "price < 0.5", "first": "category = 'c0'"}),
            runs=[
                [at(0, 0), at(1, 1), at(2, 2), at(3, 3)],
                [at(4, 4, price=None), at(6, 6, price=None), at(8, 8)],
            ],
            columns=["event_id", "category", "price"],
            rows={("e2", "c2", 0.5): 1, ("e4", "c1", None): 1, ("e8", "c2", 2.0): 1},
            figures={
                "filtered_rows": 1,
                "filter_undecided_rows": 1,
                "filtered_cheap_rows": 0,
                "filtered_first_rows": 1,
            },
        )


class TestClassify(TransformContract):
    """The first true condition names the class; a null one is passed over."""

    @pytest.fixture
    def case(self):
        return TransformCase(
            step=classify("kind", {"cheap": "price < 0.5", "first": "n % 3 = 0"}, default="rest"),
            runs=[[at(0, 0), at(2, 2), at(3, 3)], [at(4, 4, price=None), at(6, 6, price=None)]],
            columns=["event_id", "kind"],
            rows={
                ("e0", "cheap"): 1,
                ("e2", "rest"): 1,
                ("e3", "first"): 1,
                ("e4", "rest"): 1,
                ("e6", "first"): 1,
            },
            figures={
                "unclassified_rows": 1,
                "classify_undecided_rows": 1,
                "classified_cheap_rows": 0,
                "classified_first_rows": 1,
            },
        )


class TestFanOut(TransformContract):
    """Each row comes once per stream that it belongs to; a null condition is no stream."""

    @pytest.fixture
    def case(self):
        return TransformCase(
            step=fan_out("stream", {"cheap": "price < 0.5", "first": "category = 'c0'"}),
            runs=[[at(0, 0), at(1, 1)], [at(3, 3), at(6, 6, price=None), at(7, 7, price=None)]],
            columns=["event_id", "stream"],
            rows={
                ("e0", "cheap"): 1,
                ("e0", "first"): 1,
                ("e1", "cheap"): 1,
                ("e3", "first"): 1,
                ("e6", "first"): 1,
            },
            figures={
                "fan_out_dropped_rows": 1,
                "fan_out_undecided_rows": 2,
                "streamed_cheap_rows": 0,
                "streamed_first_rows": 2,
            },
        )


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path, partitions=1)


REFUSED = [
    (filter_rows(drop={"bot": "agent LIKE '%bot%'"}), "`agent` cannot be resolved"),
    (classify("kind", {"even": "n % 2 ="}), "Syntax error"),
    (classify("kind", {"even": "category"}), "BOOLEAN"),
    (filter_rows(drop={"sample": "rand() < 0.5"}), "must be decided as before: rand() < 0.5"),
    (fan_out("stream", {"sample": "rand() < 0.5"}), "must be decided as before: rand() < 0.5"),
]


def test_a_condition_that_spark_refuses_fails_the_start_by_the_name_of_the_step(flow):
    flow.send([at(0, 0)])
    pipelines = [
        flow.pipeline(f"refused-{number}", sink=Lake("refused"), steps=[step])
        for number, (step, _) in enumerate(REFUSED)
    ]
    outcomes = flow.run(*pipelines)
    for pipeline, (step, problem) in zip(pipelines, REFUSED, strict=True):
        outcome = outcomes[pipeline.name]
        assert outcome.state is State.FAILED
        assert type(step).__name__ in outcome.reason
        assert problem.lower() in outcome.reason.lower()


def test_steps_of_a_kind_add_up_their_figures_and_a_missing_default_is_null(flow):
    steps = [
        filter_rows(drop={"first": "n = 0"}),
        filter_rows(drop={"first": "category = 'c1'"}),
        classify("kind", {"third": "n = 3"}),
    ]
    flow.send([at(n, n) for n in range(4)])
    outcome = flow.run(flow.pipeline("kept", sink=Lake("kept"), steps=steps))["kept"]
    assert outcome.state is State.FINISHED, outcome.reason
    assert outcome.figures["filtered_first_rows"] == outcome.figures["filtered_rows"] == 2
    kinds = {row["event_id"]: row["kind"] for row in flow.rows("kept")}
    assert kinds == {"e2": None, "e3": "third"}


def test_copies_of_a_row_stay_together_and_keep_its_event_time(flow):
    unique = deduplicate(["event_id", "stream"], timedelta(hours=1))
    steps = [fan_out("stream", {"all": "true", "late": "n > 1", "none": "false"}), unique]
    flow.send([at(n, n) for n in (1, 2, 2, 3)])
    outcome = flow.run(flow.pipeline("copies", sink=Lake("copies"), steps=steps))["copies"]
    assert outcome.state is State.FINISHED, outcome.reason
    assert outcome.duplicate_rows == 2
    copies = Counter((row["event_id"], row["stream"]) for row in flow.rows("copies"))
    expected = [("e1", "all"), ("e2", "all"), ("e2", "late"), ("e3", "all"), ("e3", "late")]
    assert copies == Counter(expected)
    assert outcome.figures["streamed_none_rows"] == 0
