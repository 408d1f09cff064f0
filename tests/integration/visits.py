"""Events as JSON texts, in Spark and decoded, for what is evaluated on both."""

from __future__ import annotations

import json
from datetime import datetime

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t
from tests.unit.queries.compile.arrow.expressions import (
    COSTS,
    INTEGERS,
    MILLIS,
    NUMBERS,
    TEXTS,
    TIMES,
    VISITS,
    nullable,
)

from headrace.pipelines.source.decode.json_events import JsonDecoder
from headrace.queries.compile.arrow import compile_expression
from headrace.queries.compile.spark import ConstantLayout, with_event
from headrace.queries.language import parse_query

BIG_INTEGERS = st.sampled_from(
    [
        sign * (2**power + step)
        for sign in (-1, 1)
        for power in (53, 60, 62)
        for step in range(-3, 4)
    ]
) | st.integers(-(2**63) + 1, 2**63 - 1)
ANY_TEXTS = TEXTS | st.text(max_size=6) | st.text("ßẞİΣςǅŉﬁ𐐀𐐨aZ", max_size=4)
ANY_INTEGERS = INTEGERS | BIG_INTEGERS
ANY_NUMBERS = NUMBERS | BIG_INTEGERS.map(float)
EVENTS = st.fixed_dictionaries(
    {
        "title": nullable(ANY_TEXTS),
        "country": ANY_TEXTS,
        "position": nullable(ANY_INTEGERS),
        "views": ANY_INTEGERS | st.just(-(2**63)),
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
EVENT = {"country": "PL", "views": 3, "price": 2.5, "title": "a", "at": "2026-05-01T00:00:00Z"}


def generated(strategy, count):
    """Examples of Hypothesis, all for one job; they are not made smaller when it fails."""
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
    def text(value):
        return value.isoformat() if isinstance(value, datetime) else str(value)

    return json.dumps(event, default=text).encode()


def events_of(spark, texts, constants=None):
    """The events of JSON texts as Spark reads them, with their row, and its constants of rules."""
    constants = constants or [[] for _ in texts]
    schema = t.StructType().add("row", "long").add("value", "binary")
    schema = schema.add("constants", t.ArrayType(ConstantLayout.struct_type()))
    rows = list(zip(range(len(texts)), texts, constants, strict=True))
    return with_event(spark.createDataFrame(rows, schema), VISITS)


def plain(column):
    """The values of an Arrow column; times in microseconds."""
    is_time = pa.types.is_timestamp(column.type)
    return (column.cast(pa.int64()) if is_time else column).to_pylist()


def decoded(texts):
    read = JsonDecoder(VISITS).decode(texts)
    assert not read.rejected
    return read.rows


def compiled(expression):
    return compile_expression(expression, VISITS)


def condition(text):
    return parse_query(f"SELECT count(*) FROM visits WHERE {text}").where
