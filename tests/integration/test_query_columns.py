"""Expressions on columns of Spark mean what they mean on columns of Arrow."""

from __future__ import annotations

import json
from datetime import datetime

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F
from tests.unit.queries.evaluation.expressions import (
    COSTS,
    EXPRESSIONS,
    INTEGERS,
    MILLIS,
    NUMBERS,
    TEXT_EXPRESSIONS,
    TEXTS,
    TIMES,
    VISITS,
    comparisons,
    literals,
    nullable,
    paths,
)

from headrace.pipelines.source.decode.json_events import JsonDecoder
from headrace.queries.columns import column_of, with_event
from headrace.queries.evaluation import compile_expression

BIG_INTEGERS = st.sampled_from(
    [
        sign * (2**power + step)
        for sign in (-1, 1)
        for power in (53, 60, 62)
        for step in range(-3, 4)
    ]
) | st.integers(-(2**63), 2**63 - 1)
ANY_TEXTS = TEXTS | st.text(max_size=6) | st.text("ßẞİıΣσςǅŉﬁKÅ𐐀𐐨aZ", max_size=4)
ANY_INTEGERS = INTEGERS | BIG_INTEGERS
ANY_NUMBERS = NUMBERS | BIG_INTEGERS.map(float)
EVENTS = st.fixed_dictionaries(
    {
        "title": nullable(ANY_TEXTS),
        "country": ANY_TEXTS,
        "position": nullable(ANY_INTEGERS),
        "views": ANY_INTEGERS,
        "price": nullable(ANY_NUMBERS),
        "cost": nullable(COSTS),
        "is_new": nullable(st.booleans()),
        "at": TIMES,
        "seen": nullable(MILLIS.map(lambda time: int(time.timestamp() * 1000))),
        "owner": nullable(
            st.fixed_dictionaries(
                {
                    "name": nullable(ANY_TEXTS),
                    "age": nullable(ANY_INTEGERS),
                    "height": nullable(ANY_NUMBERS),
                    "is_admin": nullable(st.booleans()),
                    "since": nullable(TIMES),
                }
            )
        ),
    }
)
BIG_COMPARISONS = comparisons(
    paths("views", "position", "price", "owner.height", "owner.age"),
    literals(BIG_INTEGERS.filter(lambda number: number != -(2**63)) | BIG_INTEGERS.map(float)),
)
ANY_EXPRESSIONS = EXPRESSIONS | BIG_COMPARISONS | TEXT_EXPRESSIONS
COLUMNS_AT_ONCE = 80


def generated(strategy, count):
    """Examples that Hypothesis generates; there is no shrinking."""
    examples = []

    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example):
        examples.append(example)

    collect()
    return examples


def json_text(event):
    return json.dumps(event, default=_json_value).encode()


def _json_value(value):
    return value.isoformat() if isinstance(value, datetime) else str(value)


def of_arrow(expression, rows):
    values = compile_expression(expression, VISITS).evaluate(rows)
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return values.to_pylist()


def of_spark(events, columns):
    """The values of columns, as many lists as there are columns."""
    values = []
    for begin in range(0, len(columns), COLUMNS_AT_ONCE):
        some = columns[begin : begin + COLUMNS_AT_ONCE]
        named = [column.alias(f"c{number}") for number, column in enumerate(some)]
        table = events.select("row", *named).toArrow().sort_by("row")
        for name in table.column_names[1:]:
            column = table.column(name)
            is_time = pa.types.is_timestamp(column.type)
            values.append((column.cast(pa.int64()) if is_time else column).to_pylist())
    return values


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_values_are_those_of_arrow(spark, ansi):
    texts = [json_text(event) for event in generated(EVENTS, 60)]
    expressions = list(dict.fromkeys(generated(ANY_EXPRESSIONS, 400)))
    decoded = JsonDecoder(VISITS).decode(texts)
    assert not decoded.rejected
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    records = spark.createDataFrame(list(enumerate(texts)), "row bigint, value binary")
    events = with_event(records, VISITS).repartition(1).cache()
    columns = [column_of(each, VISITS, F.col("event")) for each in expressions]

    values = of_spark(events, columns)

    wrong = []
    for expression, column in zip(expressions, values, strict=True):
        expected = of_arrow(expression, decoded.rows)
        wrong += [
            (expression, texts[row], pair)
            for row, pair in enumerate(zip(column, expected, strict=True))
            if pair[0] != pair[1]
        ]
    assert not wrong, min(wrong, key=lambda case: len(str(case)))
