"""Values that have no JSON, wherever they stand: a row with one is a dead letter of each sink."""

import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, TypedDict

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Topic
from headrace.model.event import event_schema
from headrace.pipelines.source.record_columns import row_columns
from headrace.sinks.bigquery.columns import column_for
from headrace.sinks.bigquery.conversion import RowForm
from headrace.sinks.json_values import NoJsonError, raw_json
from headrace.sinks.kafka.records import RecordsOf
from headrace.sinks.opensearch.documents import DocumentSpec, documents_of
from headrace.sinks.postgres.rows.copying import copyable

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REJECTED = object()


class Part(TypedDict):
    any: Any
    at: datetime | None
    real: float | None


FORMS = {
    "struct": (Part, lambda part: part),
    "map": (dict[str, Part], lambda part: {"k": part}),
    "nullable list": (list[Part] | None, lambda part: [part, part]),
    "list with nulls": (list[Part | None], lambda part: [None, part]),
    "map of lists": (dict[str, list[Part]], lambda part: {"k": [part], "l": []}),
}
STRUCTURE = st.sampled_from([*'{}[],:"\\ \n', "1", "-", "1e400", "null", "tru", '"b"', '"b":2'])
TEXTS = st.lists(STRUCTURE, max_size=6).map("".join) | st.sampled_from(
    [
        "1",
        '"a"',
        "null",
        '{"a": [1,\n2]}',
        '1,"b":2',
        "1 2",
        "",
        "]",
        '{"a":1}}',
        "NaN",
        "[" * 3_000,
    ]
)
TIMES = st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**15), 10**15)
PARTS = st.fixed_dictionaries({"any": TEXTS, "at": TIMES, "real": st.none() | st.floats()})


def parsed(text):
    """The value of a text: numbers with all their digits. ValueError: it is no JSON."""

    def refuse(name):
        raise ValueError(name)

    return json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=refuse)


def is_json(text):
    try:
        parsed(text)
    except (ValueError, RecursionError):
        return False
    return True


def is_writable(part):
    times = (datetime.min.replace(tzinfo=UTC) - EPOCH, datetime.max.replace(tzinfo=UTC) - EPOCH)
    first, last = (at // timedelta(microseconds=1) for at in times)
    is_time = part["at"] is None or first <= part["at"] <= last
    return is_json(part["any"]) and is_time


def is_finite(part):
    return part["real"] is None or math.isfinite(part["real"])


def expected(part, *, keeps_floats):
    at, real = part["at"], part["real"]
    return {
        "any": parsed(part["any"]) if is_json(part["any"]) else part["any"],
        "at": None if at is None else EPOCH + timedelta(microseconds=at),
        "real": comparable(real) if keeps_floats or is_finite(part) else None,
    }


def comparable(real):
    """NaN is no number that equals itself."""
    return "NaN" if real is not None and math.isnan(real) else real


def read(value):
    """Of a value in JSON, or in a STRUCT, the parts as :func:`expected` has them."""
    if isinstance(value, list):
        return [read(item) for item in value]
    if not isinstance(value, dict) or value.keys() != {"any", "at", "real"}:
        return {k: read(v) for k, v in value.items()} if isinstance(value, dict) else value
    at, real = value["at"], value["real"]
    return {
        "any": value["any"],
        "at": datetime.fromisoformat(at) if isinstance(at, str) else at,
        "real": None if real is None else comparable(float(real)),
    }


@cache
def event_of(form):
    """An event class with a field of a form, its fields and columns."""
    types = {"id": int, "x": FORMS[form][0]}
    event = TypedDict("Event", types)
    schema = event_schema(event)
    return event, {field.name: field for field in schema.fields}, row_columns(schema, ())


def rows_of(form, parts):
    """A table of rows, the fields of their event class, and that."""
    event, fields, columns = event_of(form)
    kind = columns.field("x").type
    values = [FORMS[form][1](part) for part in parts]
    array = pa.array(values, _with_numbers(kind)).cast(kind)
    return pa.table([range(len(parts)), array], schema=columns), fields, event


def _with_numbers(kind):
    """A type with numbers in place of times, which Python may not have."""
    if pa.types.is_struct(kind):
        return pa.struct([(part.name, _with_numbers(part.type)) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _with_numbers(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_with_numbers(kind.value_type))
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def of_bigquery(rows, fields, event):
    columns = {c.name: column_for(c.name, c.type, fields[c.name]) for c in rows.schema}
    form = RowForm(columns, fields)
    rejected = {int(row) for fault in form.rejected(rows) for row in fault.rows.nonzero()[0]}
    taken = [row for row in range(rows.num_rows) if row not in rejected]
    converted = form.converted(rows.take(pa.array(taken, pa.int64())))["x"]
    for row, value in zip(taken, converted.to_pylist(), strict=True):
        is_struct = isinstance(value, dict)
        yield row, value | {"any": parsed(value["any"])} if is_struct else parsed(value)


def of_opensearch(rows, fields, event):
    spec = DocumentSpec("clicks", None, None, ("id",), None, {"x": fields["x"]})
    documents = documents_of(rows, spec)
    for row, line in zip(documents.rows, documents.lines, strict=True):
        _, source = line.splitlines()
        yield int(row), parsed(source)["x"]


def of_kafka(rows, fields, event):
    records, _ = RecordsOf(Topic("events", event=event)).of(rows)
    for row, record in records.items():
        yield row, parsed(record.value)["x"]


def of_postgres(rows, fields, event):
    for row in range(rows.num_rows):
        try:
            [text] = copyable(rows.slice(row, 1), {"x": fields["x"]})["x"].to_pylist()
        except OverflowError:  # the writer looks for such a row by halves
            continue
        yield row, parsed(text)


SINKS = {
    "bigquery": of_bigquery,
    "opensearch": of_opensearch,
    "kafka": of_kafka,
    "postgres": of_postgres,
}
# Of the page: of texts that are no JSON, PostgreSQL gets texts; NaN and infinity are null in both.
TAKES_TEXTS, HAS_NULL_FOR_NAN = {"postgres"}, {"kafka", "postgres"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sink", SINKS)
@settings(max_examples=25)
@given(st.lists(PARTS, min_size=1, max_size=4))
def test_a_value_is_in_the_sink_as_it_is_or_its_row_is_a_dead_letter(sink, form, parts):
    outcomes = dict(SINKS[sink](*rows_of(form, parts)))
    _, arrange = FORMS[form]
    keeps_floats = (sink, form) == ("bigquery", "struct")
    for row, part in enumerate(parts):
        if row in outcomes:
            assert read(outcomes[row]) == arrange(expected(part, keeps_floats=keeps_floats))
            assert sink in HAS_NULL_FOR_NAN or is_finite(part) or keeps_floats
            assert sink in TAKES_TEXTS or is_json(part["any"])
        else:
            assert not (is_writable(part) and is_finite(part)) or "1e400" in part["any"]


@given(TEXTS | st.text())
def test_a_text_goes_into_json_if_it_is_one_value(text):
    if not is_json(text):
        with pytest.raises(NoJsonError):
            raw_json(text)
    else:
        assert bytes(raw_json(text)).decode() == text
