"""Well-typed expressions, and rows of the events that they are about."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Annotated

import pyarrow as pa
from hypothesis import strategies as st

from headrace.model.event import EpochMillis, Precision, event_schema
from headrace.pipelines.source.decode.columns import arrow_schema
from headrace.queries.language.checks import time_literal
from headrace.queries.language.tree import (
    And,
    Arithmetic,
    Between,
    Comparison,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Negative,
    Not,
    Or,
    Path,
)


class Person:
    name: str | None
    age: int | None
    height: float | None
    is_admin: bool | None
    since: datetime | None


class Visit:
    title: str | None
    country: str
    position: int | None
    views: int
    price: float | None
    cost: Annotated[Decimal, Precision(9, scale=2)] | None
    is_new: bool | None
    at: datetime
    seen: EpochMillis | None
    owner: Person | None


VISITS = event_schema(Visit)
VISIT_COLUMNS = arrow_schema(VISITS)

# All integers are doubles, and many values are equal, so that conditions are met and not met.
CHARACTERS = st.sampled_from("aAbé€漢😀%_\\' \n.*[$")
TEXTS = st.sampled_from(["", "a", "ab", "a\nb", "é", "É", "\uffff", "😀"]) | st.text(
    CHARACTERS, max_size=4
)
INTEGERS = st.integers(-3, 3) | st.integers(-(2**53), 2**53)
NUMBERS = st.sampled_from(
    [-1.5, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 1e300, -1e300, 5e-324]
) | st.floats(allow_nan=False, allow_infinity=False)
_FIRST_TIME = datetime(2026, 5, 1, tzinfo=UTC)
TIMES = st.sampled_from(
    [_FIRST_TIME, _FIRST_TIME + timedelta(hours=2, milliseconds=1), datetime(1, 1, 2, tzinfo=UTC)]
) | st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
MILLIS = TIMES.map(lambda time: time.replace(microsecond=time.microsecond // 1_000 * 1_000))
TIME_TEXTS = TIMES.map(datetime.isoformat)
COSTS = st.decimals(-9_999_999, 9_999_999, places=2)
PATTERNS = st.lists(
    st.sampled_from(["%", "_", "\\%", "\\_", "\\\\", "\\a", "a", "b", "é", "\n", ".", "'"]),
    max_size=6,
).map("".join)


def nullable(values):
    return st.none() | values


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "title": nullable(TEXTS),
            "country": TEXTS,
            "position": nullable(INTEGERS),
            "views": INTEGERS,
            "price": nullable(NUMBERS),
            "cost": nullable(COSTS),
            "is_new": nullable(st.booleans()),
            "at": TIMES,
            "seen": nullable(MILLIS),
            "owner": nullable(
                st.fixed_dictionaries(
                    {
                        "name": nullable(TEXTS),
                        "age": nullable(INTEGERS),
                        "height": nullable(NUMBERS),
                        "is_admin": nullable(st.booleans()),
                        "since": nullable(TIMES),
                    }
                )
            ),
        }
    ),
    max_size=6,
).map(lambda rows: pa.RecordBatch.from_pylist(rows, VISIT_COLUMNS))


def paths(*texts):
    return st.sampled_from([Path(tuple(text.split("."))) for text in texts])


def calls(names, *arguments):
    return st.builds(FunctionCall, st.sampled_from(names), st.tuples(*arguments))


def literals(values):
    return values.map(Literal)


def lists_of(constants):
    return st.lists(constants, min_size=1, max_size=4).map(tuple)


TEXT_EXPRESSIONS = st.recursive(
    paths("title", "country", "owner.name") | literals(TEXTS),
    lambda texts: calls(["lower", "upper"], texts),
    max_leaves=3,
)
NUMBER_CONSTANTS = literals(INTEGERS | NUMBERS)
NUMBER_EXPRESSIONS = st.recursive(
    paths("position", "views", "price", "cost", "owner.age", "owner.height")
    | NUMBER_CONSTANTS
    | calls(["length"], TEXT_EXPRESSIONS),
    lambda numbers: (
        st.builds(Negative, numbers)
        | st.builds(Arithmetic, st.sampled_from("+-*/"), numbers, numbers)
        | calls(["abs", "floor", "ceil"], numbers)
    ),
    max_leaves=5,
)
TIME_PATHS = paths("at", "seen", "owner.since")
TIME_CONSTANTS = literals(TIME_TEXTS)
BOOLEAN_PATHS = paths("is_new", "owner.is_admin")
ORDERS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


def comparisons(values, constants):
    """All conditions about values of one type with an order, and constants beside them."""
    operands = values | constants
    return (
        st.builds(Comparison, ORDERS, values, operands)
        | st.builds(Comparison, ORDERS, constants, values)
        | st.builds(Between, values, operands, operands)
        | st.builds(Between, constants, values, values)
        | st.builds(In, values, lists_of(constants))
    )


def chains(kind, operands):
    def flat(parts):
        nested = (part.operands if isinstance(part, kind) else (part,) for part in parts)
        return kind(tuple(chain.from_iterable(nested)))

    return st.lists(operands, min_size=2, max_size=4).map(flat)


def _of_conditions(conditions):
    return (
        chains(And, conditions)
        | chains(Or, conditions)
        | st.builds(Not, conditions)
        | st.builds(Comparison, st.sampled_from(["=", "!="]), conditions, conditions)
        | st.builds(In, conditions, lists_of(literals(st.booleans())))
        | st.builds(IsNull, conditions)
    )


def _simple_conditions():
    return (
        BOOLEAN_PATHS
        | literals(st.booleans())
        | comparisons(TEXT_EXPRESSIONS, literals(TEXTS))
        | comparisons(NUMBER_EXPRESSIONS, NUMBER_CONSTANTS)
        | comparisons(TIME_PATHS, TIME_CONSTANTS)
        | st.builds(Like, TEXT_EXPRESSIONS, PATTERNS)
        | st.builds(IsNull, TEXT_EXPRESSIONS | NUMBER_EXPRESSIONS | TIME_PATHS)
        | calls(["startsWith", "endsWith", "contains"], TEXT_EXPRESSIONS, TEXT_EXPRESSIONS)
    )


# Deferred: Hypothesis prints strategies, and takes long for large ones.
CONDITIONS = st.recursive(st.deferred(_simple_conditions), _of_conditions, max_leaves=4)
EXPRESSIONS = CONDITIONS | NUMBER_EXPRESSIONS | TEXT_EXPRESSIONS | TIME_PATHS


def _like_it(literal):
    """Constants that differ from one and leave the shape of its expression as it is."""
    value = literal.value
    if isinstance(value, str):
        return literals(TEXTS if time_literal(value) is None else TIME_TEXTS)
    if isinstance(value, float):
        return literals(NUMBERS.filter(lambda each: _is_integer(each) == _is_integer(value)))
    return literals(st.booleans() if isinstance(value, bool) else INTEGERS)


def _is_integer(value):
    """Whether an integer field can equal a number."""
    return value.is_integer() and -(2**63) <= value < 2**63


@st.composite
def with_other_constants(draw, expression):
    """The expression with other constants at the places where they vary."""
    varies = isinstance(expression, Comparison | Between | In | Arithmetic | Negative)

    def changed(part):
        if isinstance(part, tuple):
            return tuple(changed(each) for each in part)
        if isinstance(part, Literal):
            return draw(_like_it(part)) if varies else part
        return draw(with_other_constants(part)) if hasattr(part, "position") else part

    names = [field.name for field in fields(expression) if field.name != "position"]
    return replace(expression, **{name: changed(getattr(expression, name)) for name in names})
