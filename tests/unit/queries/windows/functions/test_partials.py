"""Partials are small, and one that is damaged is refused without being added."""

import base64
import math

import msgspec
import pytest
from tests.unit.queries.windows.functions.rows import (
    MINUTE,
    Row,
    aggregation,
    partials,
    transferred,
)

from headrace.queries.language.functions import ValueType
from headrace.queries.windows.functions import PartialError

TEXT, INTEGER, NUMBER = ValueType.TEXT, ValueType.INTEGER, ValueType.NUMBER
BOOLEAN, TIME = ValueType.BOOLEAN, ValueType.TIME


def sketch(function, value_type, *values):
    parameters = (50.0,) if function == "percentile" else ()
    of = aggregation(function, value_type, *parameters)
    return partials(of, value_type, [Row(value) for value in values])[0]


def cut(partial):
    return base64.b64encode(base64.b64decode(partial)[:-1]).decode()


DAMAGED = [
    ("count", TEXT, (), [True, 1.0, "1", -1, [1], {"a": 1}]),
    ("sum", INTEGER, (), [True, 1.0, "1", [1, 0]]),
    ("sum", NUMBER, (), [1, 1.0, [1], [1, 2, 3], [1.0, 2], [1, True], [1, 10**9], [1, -1_081]]),
    ("average", NUMBER, (), [1, [0, [0, 0]], [1, 1], [None, [0, 0]]]),
    ("average", INTEGER, (), [[1, [0, 0]], [1.0, 1]]),
    ("stddev", INTEGER, (), [[1, 2], [0, 0, 0], [2, 3, 1], [1, 1, None]]),
    ("stddev", NUMBER, (), [[1, [1, 0], [1, 10**9]], [1, [1, 0], 1]]),
    ("min", TEXT, (), [1, ["a"], True]),
    ("max", NUMBER, (), ["1", 1, True]),
    ("max", TIME, (), ["2026-05-01T10:00:00Z", 1.0]),
    ("latest", BOOLEAN, (), [True, [True, 1, 2], [1, 1, 2, 3], [True, 1, "2", 3]]),
    ("uniqueCount", TEXT, (), [1, "", "?", "é", "AAAA", cut(sketch("uniqueCount", TEXT, "a"))]),
    (
        "percentile",
        NUMBER,
        (50.0,),
        ["AAAA", cut(sketch("percentile", NUMBER, 1.0, 2.0)), sketch("uniqueCount", NUMBER, 1.0)],
    ),
    ("histogram", NUMBER, (0.0, 1.0, 2.0), [1, [1], [1, -1], [1, 2.0], [1, 2, 3]]),
]


@pytest.mark.parametrize(
    ("function", "value_type", "parameters", "damaged"),
    [(*case, partial) for *case, damaged in DAMAGED for partial in damaged],
)
def test_a_damaged_partial_is_refused_and_nothing_is_added(
    function, value_type, parameters, damaged
):
    accumulator = aggregation(function, value_type, *parameters).accumulator()
    with pytest.raises(PartialError):
        accumulator.add(damaged)
    assert accumulator.partial() is None


def test_a_message_about_a_damaged_partial_is_short():
    with pytest.raises(PartialError) as caught:
        aggregation("uniqueCount", TEXT).accumulator().add("?" * 10_000)
    assert len(str(caught.value)) < 200


def test_adding_no_value_changes_nothing():
    accumulator = aggregation("sum", INTEGER).accumulator()
    accumulator.add(None)
    accumulator.add(4)
    accumulator.add(None)
    assert accumulator.partial() == 4


def test_a_partial_may_be_added_to_and_read_again():
    accumulator = aggregation("histogram", NUMBER, 0.0, 1.0, 2.0).accumulator()
    accumulator.add([1, 0])
    before = accumulator.partial()
    accumulator.add([0, 5])
    assert before == [1, 0]
    assert accumulator.value(MINUTE) == [1, 5]


@pytest.mark.parametrize(
    ("function", "value_type", "values", "text"),
    [
        ("count", TEXT, ["a", "b"], "2"),
        ("sum", INTEGER, [1, 2], "3"),
        ("sum", NUMBER, [1.0, 0.5], "[3,-1]"),
        ("sum", NUMBER, [0.0], "[0,0]"),
        ("sum", NUMBER, [1e300, -1e300, 2.0**-1074], "[1,-1074]"),
        ("average", NUMBER, [1.0, 3.0], "[2,[1,2]]"),
        ("stddev", INTEGER, [1, 2], "[2,3,5]"),
        ("min", NUMBER, [1.5], "1.5"),
        ("latest", TIME, [1_000_000], "[1000000,0,0,0]"),
    ],
)
def test_partials_are_a_few_bytes_of_json(function, value_type, values, text):
    parts = partials(aggregation(function, value_type), value_type, map(Row, values))
    assert msgspec.json.encode(parts[0]).decode() == text


def test_an_integer_of_any_length_survives_json():
    largest = [math.ldexp(1 - 2**-53, 1024), 2.0**-1074] * 1_000
    of = aggregation("stddev", NUMBER)
    (partial,) = partials(of, NUMBER, map(Row, largest))
    assert partial[2][0].bit_length() > 4_000
    assert transferred(partial) == partial
