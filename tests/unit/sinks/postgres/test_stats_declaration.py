"""What ``check`` finds wrong with a table of statistics, without a connection."""

from dataclasses import replace
from datetime import timedelta

import pytest

from headrace import Count, Distinct, Postgres, Stats, Sum, Unique
from headrace.model import FieldType
from headrace.sinks.api import DeclaredRows

COLUMNS = {
    "at": FieldType.MILLIS,
    "name": FieldType.STRING,
    "n": FieldType.LONG,
    "ratio": FieldType.DOUBLE,
    "price": FieldType.DECIMAL,
    "tags": FieldType.LIST,
}
ROWS = DeclaredRows(COLUMNS, "at")
STATS = Stats("t", by=("name",), every=timedelta(minutes=1), measures={"rows": Count()})


@pytest.mark.parametrize(
    ("changes", "message", "remedy"),
    [
        ({"table": "."}, "Stats.table is '.'", "schema.table"),
        ({"table": 5}, "Stats.table is 5", "schema.table"),
        ({"every": 60}, "Stats.every is 60", "whole seconds"),
        ({"by": "name"}, "Stats.by is 'name'", 'by=("campaign",)'),
        ({"by": (5,)}, "Stats.by is (5,)", 'by=("campaign",)'),
        ({"by": ("nam",)}, "Stats.by: 'nam' is no column of the rows", "columns: at, name"),
        ({"by": ("ratio",)}, "Stats.by: 'ratio' is double, which makes no groups", "an integer"),
        ({"measures": {}}, "Stats.measures is {}", "Count()"),
        ({"measures": [Count()]}, "Stats.measures is [Count()]", "Count()"),
        ({"measures": {5: Count()}}, "Stats.measures: 5 is no name of a column", ""),
        ({"measures": {"x": Count}}, f"Stats.measures: 'x' is {Count!r}", "Count()"),
        ({"measures": {"x": Sum(5)}}, "Sum.column is 5", 'Sum("price")'),
        ({"measures": {"x": Sum("m")}}, "Sum.column: 'm' is no column of the rows", "columns: at"),
        (
            {"measures": {"x": Sum("name")}},
            "Sum.column: 'name' is string",
            "decimal, double, long",
        ),
        ({"measures": {"x": Distinct("ratio")}}, "Distinct.column: 'ratio' is double", "a step"),
        ({"measures": {"x": Distinct("n", 30)}}, "Distinct.lg_k is 30", "from 4 to 18"),
        ({"measures": {"x": Distinct("n", lg_k=True)}}, "Distinct.lg_k is True", "from 4 to 18"),
        ({"measures": {"name": Count()}}, "Stats: column 'name' would be there twice", "another"),
        (
            {"measures": {"x": Distinct("n"), "x_sketch": Count()}},
            "Stats: column 'x_sketch' would be there twice",
            "another",
        ),
        ({"by": ("name", "name")}, "Stats: column 'name' would be there twice", "another"),
        ({"event_time": 5}, "Stats.event_time is 5", "event_time="),
        ({"unique": ["name"]}, "Stats.unique is ['name']", "Unique(by="),
        ({"unique": Unique(["x"])}, "Stats.unique: 'x' is not a column", "columns: at, name"),
        ({"unique": Unique([])}, "Unique.by is ()", 'by=["event_id"]'),
        (
            {"unique": Unique(["n"], timedelta(days=10_001))},
            f"Unique.within is {timedelta(days=10_001)!r}",
            "or None: for ever",
        ),
        (
            {"table": f"s.{'t' * 59}", "unique": Unique(["n"])},
            f"Stats.unique: 's.{'t' * 59}_keys' is too long for a table of keys",
            "at most 63 bytes",
        ),
        ({"event_time": "seen"}, "Stats.event_time: 'seen' is no column of the rows", "columns:"),
        ({"event_time": "n"}, "Stats.event_time: 'n' is long", "EpochMillis"),
    ],
)
def test_each_mistake_is_a_fault_with_its_field_and_the_way_out(changes, message, remedy):
    [fault] = replace(STATS, **changes).faults(ROWS)
    assert fault.message == message
    assert remedy in fault.remedy


@pytest.mark.parametrize("seconds", [0, -60, 0.5, 1.5, 864_000_001])
def test_a_window_has_whole_seconds(seconds):
    [fault] = replace(STATS, every=timedelta(seconds=seconds)).faults(ROWS)
    assert fault.message.startswith("Stats.every is datetime.timedelta")
    assert fault.remedy.startswith("whole seconds")


def test_an_event_time_is_needed_from_the_topic_or_the_sink():
    [fault] = STATS.faults(DeclaredRows(COLUMNS, None))
    assert (fault.message[:25], "Topic(event_time" in fault.remedy) == (
        "Stats needs an event time",
        True,
    )
    assert list(replace(STATS, event_time="at").faults(DeclaredRows(COLUMNS, None))) == []


def test_columns_that_steps_hide_are_not_checked():
    sink = replace(STATS, by=("x",), measures={"y": Sum("z"), "v": Distinct("w")})
    assert list(sink.faults(DeclaredRows(None, "at"))) == []


def test_a_table_is_written_in_one_way():
    others = (Postgres("public.t"), replace(STATS, by=()), replace(STATS, every=timedelta(hours=1)))
    others += (replace(STATS, unique=Unique(["n"])),)
    for other in others:
        assert other.resolved_target({}) == STATS.resolved_target({})
        assert ["'t'" in fault.message for fault in STATS.faults_beside(other)] == [True]
        assert len(list(other.faults_beside(STATS))) == 1
    assert list(STATS.faults_beside(replace(STATS))) == []
