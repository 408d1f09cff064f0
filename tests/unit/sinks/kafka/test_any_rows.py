"""Whatever columns hold: a row is a record if readers of the topic take it, else it is rejected."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import EpochMillis, Precision, Topic
from headrace.events.avro.values import AvroWriter
from headrace.events.instances import event_reader
from headrace.events.json_schema.schemas import JsonSchemaWriter
from headrace.sinks.kafka.records import RecordsOf

NOW = datetime(2026, 11, 22, tzinfo=UTC)
TIME, PRICE = pa.timestamp("us", "UTC"), Annotated[Decimal, Precision(8, scale=2)]
LONGS, DAYS = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
TIMES = LONGS | st.integers(-(10**9), 10**9).map(lambda milliseconds: milliseconds * 1000)
PRICES = st.decimals(-(10**8), 10**8, places=4)
TEXTS = st.text(max_size=3).map(str.encode)
# The annotation of a field, the type of its column, and values as Arrow stores them.
KINDS = {
    "text": (str, pa.string(), TEXTS | st.binary(max_size=2)),
    "enum": (Literal["a", "b"], pa.string(), st.sampled_from([b"a", b"b", b"c", b"\xff"])),
    "long": (int, pa.int64(), LONGS),
    "unsigned": (int, pa.uint64(), st.integers(0, 2**64 - 1)),
    "short": (int, pa.uint32(), st.integers(0, 2**32 - 1)),
    "double": (float, pa.float64(), st.floats()),
    "boolean": (bool, pa.bool_(), st.booleans()),
    "time": (datetime, TIME, TIMES),
    "seconds": (datetime, pa.timestamp("s", "UTC"), LONGS),
    "millis": (EpochMillis, TIME, TIMES),
    "date": (date, pa.date32(), DAYS),
    "decimal": (PRICE, pa.decimal128(13, 4), PRICES),
    "small decimal": (Decimal, pa.decimal128(13, 4), PRICES),
    "bytes": (bytes, pa.binary(), st.binary(max_size=2)),
    "any": (Any, pa.string(), st.sampled_from([b"1", b"1e400", b"{", b'{"a": [1]}', b"null"])),
}
FORMS = {
    "field": (lambda kind: kind, lambda values: values),
    "struct": (
        lambda kind: TypedDict("Inner", {"y": kind}),
        lambda values: pa.StructArray.from_arrays([values], ["y"]),
    ),
    "struct or null": (
        lambda kind: TypedDict("Inner", {"y": kind}) | None,
        lambda values: pa.StructArray.from_arrays([values], ["y"], mask=values.is_null()),
    ),
    "list": (
        lambda kind: list[kind],
        lambda values: pa.ListArray.from_arrays(list(range(len(values) + 1)), values),
    ),
    "map": (
        lambda kind: dict[str, kind],
        lambda values: pa.MapArray.from_arrays(
            list(range(len(values) + 1)), ["k"] * len(values), values
        ),
    ),
}


def stored(values, kind):
    """Returns an array of values that need not be any of the type."""
    if pa.types.is_string(kind):
        return pa.array(values, pa.binary()).view(kind)
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind == pa.date32() else pa.int64()).view(kind)
    return pa.array(values, kind)


def outcomes(topic, rows, writer=None):
    """What becomes of each row: the value of its record, or why it has none."""
    records, rejected = RecordsOf(topic, NOW.timestamp, writer).of(rows)
    values = {index: record.value for index, record in records.items()}
    return values | {row.index: (row.reason, row.detail) for row in rejected}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(st.data(), st.sampled_from([*FORMS]), st.booleans())
def test_readers_take_each_record_and_rows_are_judged_alone(kind, data, form, nullable):
    annotation, column, strategy = KINDS[kind]
    declared, arranged = FORMS[form]
    values = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=4))
    fields = {"x": declared(annotation | None if nullable else annotation)}
    topic = Topic("events", event=TypedDict("Event", fields))
    rows = pa.table({"x": arranged(stored(values, column))})
    together = outcomes(topic, rows)
    alone = [outcomes(topic, rows.slice(index, 1))[0] for index in range(len(values))]
    assert alone == [together[index] for index in range(len(values))]
    read = event_reader(topic, clock=NOW.timestamp)
    for outcome in alone:
        if isinstance(outcome, bytes):
            read(outcome)
    for writes in (AvroWriter, JsonSchemaWriter)[kind == "any" :]:
        writer = writes(topic.schema, 1)
        assert outcomes(topic, rows, writer) == {
            index: writer(outcome) if isinstance(outcome, bytes) else outcome
            for index, outcome in together.items()
        }
