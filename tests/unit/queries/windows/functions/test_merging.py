"""Batches, groups and the order of merging do not matter; exact aggregates have no error."""

import math
import statistics
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.queries.windows.functions.rows import (
    MINUTE,
    Row,
    accumulated,
    aggregation,
    partials,
)

from headrace.queries.language.functions import ValueType

TEXT, INTEGER, NUMBER = ValueType.TEXT, ValueType.INTEGER, ValueType.NUMBER
BOOLEAN, TIME = ValueType.BOOLEAN, ValueType.TIME

GROUPS = 3
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
LONGS = st.integers(-(2**63), 2**63 - 1)
VALUES = {
    TEXT: st.text(max_size=3),
    INTEGER: st.one_of(LONGS, st.integers(-3, 3)),
    NUMBER: st.one_of(DOUBLES, st.integers(-300, 300).map(lambda cents: cents / 100)),
    BOOLEAN: st.booleans(),
    TIME: st.datetimes().map(lambda time: time.replace(fold=0)),
}


# Made once: Hypothesis checks each new strategy, which takes longer than to draw from it.
CELLS = {
    value_type: st.lists(
        st.tuples(st.none() | values, st.integers(0, GROUPS - 1), st.integers(-2, 2)), max_size=30
    )
    for value_type, values in VALUES.items()
}
CUTS = [st.lists(st.integers(0, count), max_size=4).map(sorted) for count in range(31)]
# Its orders follow from one number that is drawn, and not from one for each step of a shuffle.
RANDOMS = st.randoms(use_true_random=True)


def drawn_batches(data, value_type, random):
    """Returns batches of rows; those of one record have one place, but for their times."""
    rows = [
        Row(value, group, (time, number // 4 % 2, number // 4))
        for number, (value, group, time) in enumerate(data.draw(CELLS[value_type]))
    ]
    cuts = data.draw(CUTS[len(rows)])
    random.shuffle(rows)
    return [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def merged(of, value_type, parts, random):
    """Returns the accumulator of each group: partials in any order, some merged beforehand."""
    accumulators = []
    for of_group in zip(*(partials(of, value_type, rows, GROUPS) for rows in parts), strict=True):
        shuffled = random.sample(of_group, len(of_group))
        middle = random.randint(0, len(shuffled))
        halves = (accumulated(of, shuffled[:middle]), accumulated(of, shuffled[middle:]))
        accumulators.append(accumulated(of, [half.partial() for half in halves]))
    return accumulators


def nearest(exact):
    try:
        return float(exact)
    except OverflowError:
        return None


def exact_sum(values):
    return nearest(sum(map(Fraction, values))) if values else None


def exact_average(values):
    return nearest(sum(map(Fraction, values)) / len(values)) if values else None


def in_order(value):
    """Returns what a value is compared by: of a text, its bytes."""
    return value.encode() if isinstance(value, str) else value


def texts_or_numbers(extreme):
    return lambda values: extreme(values, key=in_order, default=None)


def buckets(values):
    indices = [math.floor(Fraction(value) / 2 + 1) for value in values]
    return [indices.count(index) for index in range(5)]


@pytest.mark.parametrize(
    ("function", "value_type", "parameters", "reference"),
    [
        ("count", TEXT, (), len),
        ("sum", INTEGER, (), lambda values: sum(values) if values else None),
        ("sum", NUMBER, (), exact_sum),
        ("average", INTEGER, (), exact_average),
        ("average", NUMBER, (), exact_average),
        ("stddev", INTEGER, (), lambda values: statistics.pstdev(values) if values else None),
        ("stddev", NUMBER, (), lambda values: statistics.pstdev(values) if values else None),
        ("min", TEXT, (), texts_or_numbers(min)),
        ("max", TEXT, (), texts_or_numbers(max)),
        ("min", NUMBER, (), texts_or_numbers(min)),
        ("max", INTEGER, (), texts_or_numbers(max)),
        ("uniqueCount", TEXT, (), lambda values: len(set(values))),
        ("uniqueCount", INTEGER, (), lambda values: len(set(values))),
        ("uniqueCount", NUMBER, (), lambda values: len(set(values))),
        ("uniqueCount", BOOLEAN, (), lambda values: len(set(values))),
        (
            "percentile",
            NUMBER,
            (75.0,),
            lambda values: sorted(values)[math.ceil(len(values) * 0.75) - 1] if values else None,
        ),
        ("histogram", NUMBER, (-2.0, 2.0, 5.0), buckets),
    ],
)
@given(data=st.data(), random=RANDOMS)
def test_any_batches_in_any_order_give_the_value_of_all_rows(
    function, value_type, parameters, reference, data, random
):
    parts = drawn_batches(data, value_type, random)
    of = aggregation(function, value_type, *parameters)
    for group, accumulator in enumerate(merged(of, value_type, parts, random)):
        values = [
            row.value
            for rows in parts
            for row in rows
            if row.group == group and row.value is not None
        ]
        value, expected = accumulator.value(MINUTE), reference(values)
        assert value == expected
        assert type(value) is type(expected)


@pytest.mark.parametrize("value_type", VALUES)
@given(data=st.data(), random=RANDOMS)
def test_the_latest_of_all_batches_is_that_of_the_newest_event(value_type, data, random):
    parts = drawn_batches(data, value_type, random)
    of = aggregation("latest", value_type)
    for group, accumulator in enumerate(merged(of, value_type, parts, random)):
        counted = [
            row for rows in parts for row in rows if row.group == group and row.value is not None
        ]
        newest = max(counted, key=lambda row: (row.place, in_order(row.value)), default=None)
        if newest is None:
            assert accumulator.value(MINUTE) is None
        elif value_type is TIME:
            assert accumulator.value(MINUTE) == f"{newest.value.isoformat()}Z"
        else:
            assert accumulator.value(MINUTE) == newest.value


@pytest.mark.parametrize(
    ("function", "value_type"),
    [("sum", NUMBER), ("sum", INTEGER), ("average", NUMBER), ("stddev", NUMBER), ("min", NUMBER)],
)
@given(data=st.data(), random=RANDOMS)
def test_the_partial_of_an_exact_aggregate_depends_on_nothing_but_its_rows(
    function, value_type, data, random
):
    parts = drawn_batches(data, value_type, random)
    of = aggregation(function, value_type)
    rows = [row for part in parts for row in part]
    whole = partials(of, value_type, rows, GROUPS)
    assert [each.partial() for each in merged(of, value_type, parts, random)] == whole
