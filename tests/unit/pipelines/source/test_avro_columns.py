"""Avro values are read a field of all records at a time as they are read record by record."""

import io
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import EpochMillis, Precision
from headrace.events.avro.values import AvroReader, AvroTexts
from headrace.events.parsing.values import as_read
from headrace.events.wire_format import HEADER
from headrace.model import event_schema
from headrace.pipelines.source.decode.avro import BLOCK_RECORDS, AvroDecoder
from headrace.pipelines.source.decode.avro_columns import MIN_RECORDS, AvroColumns
from headrace.pipelines.source.decode.avro_cursors import MAX_ITEMS
from headrace.pipelines.source.decode.avro_reads import NotInColumnsError
from headrace.pipelines.source.decode.json_events import JsonDecoder

HEAD = HEADER.pack(0, 1)
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**14), 2**14)
TIMES = st.datetimes(timezones=st.just(UTC))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1000, 1000).map(float)
CENTS = st.decimals(-(10**9), 10**9, places=2)


class Inner:
    a: str
    b: int | None


def logical(base, logical_type, /, **more):
    return {"type": base, "logicalType": logical_type} | more


INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": ["null", "long"]}],
}
INNERS = st.fixed_dictionaries({"a": st.text(max_size=3), "b": st.none() | LONGS})
MONEY = Annotated[Decimal, Precision(12, 2)]
# What the class has, what the writer wrote, and values of that.
KINDS: list[tuple[Any, Any, st.SearchStrategy[Any]]] = [
    (str, "string", st.text(max_size=20)),
    (Literal["x", "y"], "string", st.sampled_from("xxxyyyz")),
    (str, {"type": "enum", "name": "E", "symbols": ["x", "y"]}, st.sampled_from(["x", "y"])),
    (int, "long", LONGS),
    (int, "int", st.integers(-(2**31), 2**31 - 1)),
    (float, "double", NUMBERS),
    (float, "float", st.floats(width=32, allow_nan=False, allow_infinity=False)),
    (float, "long", st.integers(-(2**54), 2**54)),
    (bool, "boolean", st.booleans()),
    (datetime, logical("long", "timestamp-millis"), TIMES),
    (EpochMillis, logical("long", "timestamp-micros"), TIMES),
    (date, logical("int", "date"), st.dates()),
    (bytes, "bytes", st.binary(max_size=20)),
    (bytes, {"type": "fixed", "name": "F", "size": 3}, st.binary(min_size=3, max_size=3)),
    (MONEY, logical("bytes", "decimal", precision=12, scale=2), CENTS),
    (
        MONEY,
        logical("bytes", "decimal", precision=30, scale=0),
        st.integers(-(10**11), 10**11).map(Decimal),
    ),
    (
        MONEY,
        logical("fixed", "decimal", name="D", size=9, precision=12, scale=1),
        st.decimals(-(10**9), 10**9, places=1),
    ),
    (MONEY, "long", st.integers(-(10**11), 10**11)),
    (Inner, INNER, INNERS),
    (list[int], {"type": "array", "items": "long"}, st.lists(LONGS, max_size=5)),
    (
        list[str | None],
        {"type": "array", "items": ["null", "string"]},
        st.lists(st.none() | st.text(max_size=3), max_size=5),
    ),
    (list[Inner], {"type": "array", "items": INNER}, st.lists(INNERS, max_size=3)),
    (
        dict[str, float],
        {"type": "map", "values": "double"},
        st.dictionaries(st.text(max_size=3), NUMBERS, max_size=4),
    ),
    (
        dict[str, list[int]],
        {"type": "map", "values": {"type": "array", "items": "long"}},
        st.dictionaries(st.text(max_size=3), st.lists(LONGS, max_size=3), max_size=3),
    ),
]
# Of these, few values are events, or the others are not read together.
RARE: list[tuple[Any, Any, st.SearchStrategy[Any]]] = [
    (EpochMillis, "long", LONGS),
    (datetime, "string", TIMES.map(datetime.isoformat)),
    (float, "double", st.floats()),
    (MONEY, logical("bytes", "decimal", precision=12, scale=4), CENTS),
    (MONEY, "long", LONGS),
    (str, "bytes", st.binary(max_size=3)),
]


def written(schema, value):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return HEAD + stream.getvalue()


@st.composite
def fields(draw):
    """Two to five fields: whether the class has it, whether it is nullable on either side."""
    kinds = RARE if draw(st.integers(0, 9)) == 7 else KINDS
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=5))
    made = []
    for number, (declared, kind, values) in enumerate(chosen):
        is_union, is_null_first = draw(st.booleans()), draw(st.booleans())
        if is_union:
            kind = ["null", kind] if is_null_first else [kind, "null"]  # noqa: PLW2901
            values = st.none() | values  # noqa: PLW2901
        if is_union != (draw(st.integers(0, 19)) == 13):
            declared = declared | None  # noqa: PLW2901
        if number and draw(st.integers(0, 9)) == 7:
            declared = None  # noqa: PLW2901
        made.append((f"f{number}", declared, kind, values))
    return made


@st.composite
def damaged(draw, value):
    """The value, or one that is cut off, longer, or has other bytes."""
    match draw(st.integers(0, 19)):
        case 12:
            return value[: draw(st.integers(0, len(value)))]
        case 13:
            return value + draw(st.binary(min_size=1, max_size=3))
        case 14 | 15:
            place = draw(st.integers(HEADER.size, max(HEADER.size, len(value) - 1)))
            other = draw(st.sampled_from([b"\xff", b"\x80", b"\x00", b"\x01", b"\x02", b"\x05"]))
            return value[:place] + other * draw(st.integers(1, 11)) + value[place + 1 :]
        case _:
            return value


@st.composite
def topics(draw):
    """An event class, the writer's schema, and values of it of which some are damaged."""
    made = draw(fields())
    declared = {name: kind for name, kind, _, _ in made if kind is not None}
    event = type("Event", (), {"__annotations__": declared})
    names: set[str] = set()
    schema = {
        "type": "record",
        "name": "Event",
        "fields": [{"name": name, "type": once(kind, names)} for name, _, kind, _ in made],
    }
    events = st.fixed_dictionaries({name: values for name, _, _, values in made})
    values = draw(st.lists(events, min_size=1, max_size=9))
    return event, schema, [draw(damaged(written(schema, value))) for value in values]


def once(schema, names):
    """The schema, in which a type that has been defined is only named."""
    if isinstance(schema, list):
        return [once(branch, names) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("name") in names:
        return schema["name"]
    names.update({schema["name"]} if "name" in schema else ())
    return schema | {key: once(schema[key], names) for key in ("items", "values") if key in schema}


def columns_of(schema, event):
    declared = event_schema(event)
    arrow_schema = AvroDecoder(declared, {}.get).arrow_schema
    return AvroColumns(AvroReader(schema, declared), declared, arrow_schema)


def together(values, event, schema):
    """Rows and rejections of values that are read by the decoder, in a block of enough records."""
    block = [*values, *values * (MIN_RECORDS * 6 // len(values))]
    decoded = AvroDecoder(event_schema(event), {1: schema}.get).decode(block)
    decoded.rows.validate(full=True)
    rows = decoded.rows.to_pylist()
    rejected = {n: why for n, why in decoded.rejected.items() if n < len(values)}
    rounds = len(block) // len(values)
    accepted = len(values) - len(rejected)
    assert rows == rows[:accepted] * rounds
    assert len(decoded.rejected) == len(rejected) * rounds
    return rows[:accepted], rejected


def record_by_record(values, event, schema):
    """Rows and rejections of values that are read one by one, by way of JSON text."""
    declared = event_schema(event)
    texts, decoder = AvroTexts({1: schema}.get, declared), JsonDecoder(as_read(declared))
    rows, rejected = [], {}
    for index, value in enumerate(values):
        text = texts(value)
        if isinstance(text, tuple):
            rejected[index] = text
            continue
        decoded = decoder.decode([text])
        rows += decoded.rows.to_pylist()
        if decoded.rejected:
            rejected[index] = decoded.rejected[0]
    return rows, rejected


@given(topics())
def test_values_are_read_together_as_record_by_record(topic):
    event, schema, values = topic
    assert together(values, event, schema) == record_by_record(values, event, schema)


class Basket:
    id: str
    numbers: list[int]
    prices: dict[str, float]


BASKET = {
    "type": "record",
    "name": "Basket",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "numbers", "type": {"type": "array", "items": "long"}},
        {"name": "prices", "type": {"type": "map", "values": "double"}},
    ],
}
# An array and a map in blocks: two items with the size of the block, one without; a key twice.
BLOCKS = HEAD + b"\x02a" + b"\x03\x04\x02\x04\x02\x06\x00"
DOUBLE = b"\x00\x00\x00\x00\x00\x00\xf8?"
ENTRY = b"\x02k" + DOUBLE


def basket(items):
    return {"id": "b", "numbers": [*range(items)], "prices": {str(n): 0.5 for n in range(items)}}


@pytest.mark.parametrize(
    ("value", "is_together"),
    [
        (written(BASKET, basket(0)), True),
        (written(BASKET, basket(MAX_ITEMS)), True),
        (written(BASKET, basket(MAX_ITEMS + 1)), False),
        (BLOCKS + b"\x02" + ENTRY + b"\x00", True),
        (BLOCKS + b"\x04" + ENTRY + ENTRY + b"\x00", False),
        (BLOCKS + b"\x01\x16" + ENTRY + b"\x02\x02l" + DOUBLE + b"\x00", True),
        (BLOCKS + b"\x01\x16" + ENTRY + b"\x02" + ENTRY + b"\x00", False),
        # A count of 2**62, and the smallest one there is.
        (BLOCKS + b"\x80" * 8 + b"\x80\x01" + ENTRY, False),
        (BLOCKS + b"\xff" * 9 + b"\x01\x16" + ENTRY + b"\x00", False),
    ],
)
def test_items_of_all_records_are_read_together_but_those_of_long_lists(value, is_together):
    columns = columns_of(BASKET, Basket)
    values = [written(BASKET, basket(2)), value, written(BASKET, basket(1))]
    rounds = 4 * MAX_ITEMS
    assert [*columns.read(values * rounds)[1]] == [False, not is_together, False] * rounds
    assert together(values, Basket, BASKET) == record_by_record(values, Basket, BASKET)


class Node:
    id: str
    n: int | None


ID = {"name": "id", "type": "string"}
N = {"name": "n", "type": "long"}


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ({"name": "next", "type": ["null", "Node"]}, "does not bound how deep values nest"),
        ({"name": "n", "type": ["null", "long", "string"]}, "a union that is not of null and one"),
        ({"name": "n", "type": ["null", ["null", "long"]]}, "a union that is not of null and one"),
        ({"name": "n", "type": ["null"]}, "a union that is not of null and one"),
        ({"name": "n", "type": ["null", "double"]}, "Avro's double for long 'n'"),
    ],
)
def test_other_types_are_read_record_by_record(field, reason):
    schema = {"type": "record", "name": "Node", "fields": [ID, field]}
    with pytest.raises(NotInColumnsError, match=reason):
        columns_of(schema, Node)
    values = [written(schema, {"id": "a", field["name"]: None})]
    assert together(values, Node, schema) == record_by_record(values, Node, schema)


def test_records_of_several_schemas_keep_their_order():
    guid = UUID(int=7)
    other = {"type": "record", "name": "Node", "fields": [{"name": "n", "type": "long"}, ID]}
    union = {
        "type": "record",
        "name": "Node",
        "fields": [ID, {"name": "n", "type": ["int", "long"]}],
    }
    first = {"type": "record", "name": "Node", "fields": [ID]}
    schemas = {1: first, 2: other, 3: union, guid: other}
    bodies = {
        1: written(first, {"id": "a"}),
        2: written(other, {"id": "b", "n": 2}),
        3: written(union, {"id": "c", "n": 3}),
        guid: written(other, {"id": "d", "n": 4}),
    }
    framed = {
        key: (b"\x01" + key.bytes if key == guid else HEADER.pack(0, key)) + body[HEADER.size :]
        for key, body in bodies.items()
    }
    values = [framed[key] for key in (2, 1, 3, guid, 1, 2)]
    values[3:3] = [None, HEADER.pack(0, 9) + b"x", framed[1] + b"x"]
    values *= BLOCK_RECORDS // len(values) + MIN_RECORDS
    decoded = AvroDecoder(event_schema(Node), schemas.get).decode(values)
    rounds = len(values) // 9
    assert decoded.rows["id"].to_pylist() == ["b", "a", "c", "d", "a", "b"] * rounds
    assert decoded.rows["n"].to_pylist() == [2, None, 3, 4, None, 2] * rounds
    reasons = ["null-value", "unknown-schema", "trailing-data"] * rounds
    assert [reason for reason, _ in decoded.rejected.values()] == reasons
    assert [*decoded.rejected] == [n for n in range(len(values)) if n % 9 in (3, 4, 5)]


def named(name, *fields):
    return {"type": "record", "name": name, "fields": [*fields]}


def grown(levels, kind):
    """Types of which each has the one before it, more often with each level."""
    fields = [{"name": "r0", "type": ["null", named("R0", {"name": "a", "type": "long"})]}]
    for level in range(1, levels):
        inner = ["null", f"R{level - 1}"]
        parts = [{"name": part, "type": inner} for part in kind]
        fields.append({"name": f"r{level}", "type": ["null", named(f"R{level}", *parts)]})
    return named("Node", ID, *fields), {f"r{level}": None for level in range(levels)}


def nested_array(levels, items):
    for _ in range(levels):
        items = {"type": "array", "items": items}
    return named("Node", ID, {"name": "x", "type": items}), {"x": []}


def with_field(kind, value):
    return named("Node", ID, {"name": "x", "type": kind}), {"x": value}


@pytest.mark.parametrize(
    ("schema", "fields"),
    [
        grown(40, "xy"),
        grown(400, "x"),
        nested_array(450, "long"),
        with_field({"type": "array", "items": "null"}, [None] * 50),
        with_field(["null", {"type": "enum", "name": "E", "symbols": []}], None),
        with_field(["null", {"type": "fixed", "name": "F", "size": 2**70}], None),
    ],
)
def test_odd_schemas_are_read_record_by_record(schema, fields):
    values = [written(schema, {"id": "a", **fields})]
    assert together(values, Node, schema) == record_by_record(values, Node, schema)


class Symbol:
    id: str
    x: str


@pytest.mark.parametrize(
    "symbols", [[], [1, 2], ["x", 5], ["x", None], [["a"]], ["\ud800"], "xy", {"x": 1}]
)
def test_symbols_that_are_no_texts_fail_nothing(symbols):
    kind = {"type": "enum", "name": "E", "symbols": symbols}
    schema = named("Symbol", ID, {"name": "x", "type": ["null", kind]})
    values = [HEAD + b"\x02a" + end for end in (b"\x00", b"\x02\x00", b"\x02\x02")]
    assert together(values, Symbol, schema) == record_by_record(values, Symbol, schema)


def test_two_fields_of_one_name_are_read_as_record_by_record():
    schema = named("Node", *({"name": "id", "type": kind} for kind in ("long", "string")), N)
    values = [HEAD + b"\x02\x00\x06", HEAD + b"\x04\x02a\x06"]
    assert together(values, Node, schema) == record_by_record(values, Node, schema)
    with pytest.raises(NotInColumnsError, match="two fields of 'Node' have one name"):
        columns_of(schema, Node)


def test_why_a_schema_is_decoded_record_by_record_is_logged_once(caplog):
    schema = named("Node", ID, {"name": "n", "type": ["int", "long"]})
    value = HEADER.pack(0, 4711) + written(schema, {"id": "a", "n": 1})[HEADER.size :]
    for _ in range(2):
        AvroDecoder(event_schema(Node), {4711: schema}.get).decode([value, value])
    [message] = caplog.messages
    assert message == (
        "Node: records with the schema id 4711 are decoded record by record, which takes up to ten "
        "times as long: it has a union that is not of null and one other type"
    )


def test_a_block_of_long_lists_is_read_in_few_steps():
    deep = {"type": "array", "items": {"type": "array", "items": "long"}}
    schema = named("Node", ID, {"name": "x", "type": deep})
    values = [written(schema, {"id": str(n), "x": [[1] * 60] * 60}) for n in range(MIN_RECORDS)]
    columns = columns_of(schema, Node)
    assert columns.read(values)[1].all()
    assert together(values, Node, schema) == record_by_record(values, Node, schema)


class Real:
    id: str
    x: float


@pytest.mark.filterwarnings("error")
def test_a_signalling_nan_is_no_warning():
    schema = named("Real", ID, {"name": "x", "type": "float"})
    values = [written(schema, {"id": "a", "x": 1.5}), HEAD + b"\x02a" + b"\x01\x00\x80\x7f"]
    assert together(values, Real, schema) == record_by_record(values, Real, schema)
