"""The value of each aggregate, with nulls, without rows, and at the ends of what doubles are."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.queries.windows.functions.rows import (
    MINUTE,
    Row,
    accumulated,
    aggregation,
    partials,
    value_of,
)

from headrace.queries.language.functions import ValueType

TEXT, INTEGER, NUMBER = ValueType.TEXT, ValueType.INTEGER, ValueType.NUMBER
BOOLEAN, TIME = ValueType.BOOLEAN, ValueType.TIME
HUGE, TINY = 1.7976931348623157e308, 5e-324
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize("values", [[], [None], [None] * 3])
@pytest.mark.parametrize(
    ("function", "value_type", "parameters", "value"),
    [
        ("count", TEXT, (), 0),
        ("sum", NUMBER, (), None),
        ("sum", INTEGER, (), None),
        ("average", NUMBER, (), None),
        ("stddev", NUMBER, (), None),
        ("min", TEXT, (), None),
        ("max", TIME, (), None),
        ("latest", BOOLEAN, (), None),
        ("uniqueCount", TEXT, (), 0),
        ("percentile", NUMBER, (50.0,), None),
        ("histogram", NUMBER, (0.0, 1.0, 3.0), [0, 0, 0]),
    ],
)
def test_without_values_counts_are_zero_and_all_else_is_null(
    function, value_type, parameters, value, values
):
    of = aggregation(function, value_type, *parameters)
    assert partials(of, value_type, [Row(each) for each in values]) == [None]
    assert value_of(function, value_type, values, *parameters) == value


def test_rows_that_are_counted_without_an_argument():
    assert value_of("count", None, [None, None, None]) == 3


@pytest.mark.parametrize(
    ("function", "value_type", "values", "value"),
    [
        ("count", BOOLEAN, [True, None, False], 2),
        ("sum", INTEGER, [3], 3),
        ("sum", INTEGER, [-5, None, 2], -3),
        ("sum", INTEGER, [2**63 - 1] * 3, 3 * (2**63 - 1)),
        ("sum", INTEGER, [-(2**63)] * 3, -3 * 2**63),
        ("sum", NUMBER, [0.1] * 10, 1.0),
        ("sum", NUMBER, [1e308, 1.0, 1e308, -1e308, -1e308], 1.0),
        ("sum", NUMBER, [HUGE, HUGE], None),
        ("sum", NUMBER, [-HUGE, -HUGE], None),
        ("sum", NUMBER, [TINY, TINY, -HUGE, HUGE], 2 * TINY),
        ("sum", NUMBER, [-TINY], -TINY),
        ("sum", NUMBER, [0.0, -0.0], 0.0),
        ("average", INTEGER, [2**63 - 1, 2**63 - 1], float(2**63)),
        ("average", INTEGER, [-1, None, 2], 0.5),
        ("average", NUMBER, [HUGE, HUGE, HUGE], HUGE),
        ("average", NUMBER, [TINY, 0.0, 0.0], 0.0),
        ("stddev", NUMBER, [7.5], 0.0),
        ("stddev", NUMBER, [1e16, 1e16 + 2], 1.0),
        ("stddev", NUMBER, [HUGE, -HUGE], HUGE),
        ("stddev", NUMBER, [TINY, 3 * TINY], TINY),
        ("stddev", NUMBER, [1.0, None, 3.0], 1.0),
        ("stddev", INTEGER, [-(2**63), 2**63 - 1], 2.0**63),
        ("min", INTEGER, [-(2**63), None, 5], -(2**63)),
        ("max", INTEGER, [2**53 + 1, 2**53], 2**53 + 1),
        ("min", NUMBER, [TINY, -TINY, HUGE], -TINY),
        ("max", NUMBER, [-HUGE], -HUGE),
        ("min", TEXT, ["b", "", None, "a"], ""),
        ("max", TEXT, ["\uffff", "\U0001f600", "z"], "\U0001f600"),
        ("uniqueCount", TEXT, ["", "a", "", None], 2),
        ("uniqueCount", NUMBER, [1.0, 1, -0.0, 0.0, None], 2),
        ("uniqueCount", INTEGER, [-1, 2**63 - 1, -(2**63)], 3),
        ("uniqueCount", BOOLEAN, [True, False, True], 2),
    ],
)
def test_the_value_of_some_values(function, value_type, values, value):
    actual = value_of(function, value_type, values)
    assert actual == value
    assert type(actual) is type(value)


@pytest.mark.parametrize("zeros", [[0.0, -0.0], [-0.0, 0.0]])
@pytest.mark.parametrize("function", ["min", "max"])
def test_an_extreme_zero_has_no_sign(function, zeros):
    assert str(value_of(function, NUMBER, zeros)) == "0.0"


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 5, 1, 10, tzinfo=UTC), "2026-05-01T10:00:00Z"),
        (datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC), "1969-12-31T23:59:59.500000Z"),
    ],
)
@pytest.mark.parametrize("function", ["min", "max", "latest"])
def test_a_time_is_a_text_with_microseconds_only_if_it_has_any(function, moment, text):
    assert value_of(function, TIME, [moment]) == text
    assert value_of("uniqueCount", TIME, [moment, moment, None]) == 1


def test_the_latest_value_is_that_of_the_greatest_time_partition_and_offset():
    of = aggregation("latest", TEXT)
    rows = [
        Row("old", 0, (1, 9, 9)),
        Row("other partition", 0, (2, 0, 9)),
        Row("newest", 0, (2, 1, 8)),
        Row("lower offset", 0, (2, 1, 7)),
        Row(None, 0, (3, 0, 0)),
    ]
    assert partials(of, TEXT, rows) == [["newest", 2, 1, 8]]
    assert partials(of, TEXT, rows[::-1]) == [["newest", 2, 1, 8]]


@pytest.mark.parametrize(
    ("value_type", "values"),
    [(TEXT, ["a", "\uffff", "😀"]), (BOOLEAN, [False, True]), (INTEGER, [-3, 2])],
)
def test_the_latest_value_of_one_record_is_the_greatest_in_any_batches(value_type, values):
    of = aggregation("latest", value_type)
    rows = [Row(value, 0, (1, 2, 3)) for value in values]
    for ordered in (rows, rows[::-1]):
        [partial] = partials(of, value_type, ordered)
        assert partial == [values[-1], 1, 2, 3]
        parts = [partial for row in ordered for partial in partials(of, value_type, [row])]
        assert accumulated(of, parts).value(MINUTE) == values[-1]


def test_each_group_has_its_own_partial():
    of = aggregation("sum", INTEGER)
    rows = [Row(1, 3), Row(2, 1), Row(None, 0), Row(4, 3)]
    assert partials(of, INTEGER, rows, group_count=5) == [None, 2, None, 5, None]
    assert partials(of, INTEGER, [], group_count=0) == []


@pytest.mark.parametrize(
    ("function", "value_type", "values", "value"),
    [
        ("count", None, [1] * 30, 0.5),
        ("count", None, [], 0.0),
        ("sum", INTEGER, [2**62] * 4, 2**64 / 60),
        ("sum", NUMBER, [HUGE] * 60, HUGE),
        ("sum", NUMBER, [HUGE] * 61, None),
        ("sum", NUMBER, [None], None),
    ],
)
def test_a_rate_is_the_value_for_each_duration_of_the_window(function, value_type, values, value):
    assert value_of(function, value_type, values, per=SECOND) == value


def test_the_rate_of_a_longer_duration_than_the_window():
    of = aggregation("count", None, per=timedelta(hours=1))
    accumulator = of.accumulator()
    accumulator.add(2)
    assert accumulator.value(MINUTE) == 120.0


def test_a_value_on_an_edge_is_in_the_upper_bucket_and_those_outside_in_none():
    values = [-0.1, 0.0, 9.999, 10.0, 29.999, 30.0, 1e300, -1e300, None]
    assert value_of("histogram", NUMBER, values, 0.0, 10.0, 3.0) == [2, 1, 1]


def test_edges_of_a_histogram_are_the_decimals_that_the_query_has():
    values = [edge / 10 for edge in range(10)]
    assert value_of("histogram", NUMBER, values, 0.0, 0.1, 10.0) == [1] * 10


def test_a_histogram_of_integers_that_ends_beyond_the_range_of_doubles():
    assert value_of("histogram", INTEGER, [-(2**63), 0, 5], 0.0, HUGE, 3.0) == [2, 0, 0]


def test_a_percentile_of_few_values_is_one_of_them():
    values = [float(value) for value in range(1, 201)]
    percentiles = [value_of("percentile", NUMBER, values, p) for p in (0.0, 0.5, 50.0, 99.6, 100.0)]
    assert percentiles == [1.0, 1.0, 100.0, 200.0, 200.0]
    assert value_of("percentile", INTEGER, [7], 95.0) == 7.0
    assert value_of("percentile", NUMBER, [HUGE, -HUGE, TINY], 50.0) == TINY
