"""A row is the same in memory and read back from its table, whatever its values are."""

import json
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sinks.lake.delta.test_table import TIME, spec
from tests.unit.sinks.lake.unique.test_unique_table import Writer

from headrace import Unique, UnsafeValues
from headrace.model import event_schema
from headrace.sinks.any_values import fields_with_any

ITEM = pa.struct([("name", pa.string()), ("tags", pa.list_(pa.int64()))])
PART = pa.struct([("doc", pa.string()), ("at", TIME), ("price", pa.decimal128(9, 2))])
PARTITIONS = ["day", "hour", "campaign", "odd name: 50% ü", "number", "small", "flag"]
LATER = ["by_name", "doc", "double", "item", "text"]
"""Columns that a table may get later."""


class Part:
    doc: Any
    at: datetime | None
    price: float | None


class Click:
    doc: Any
    parts: list[Part] | None


CLICK = {field.name: field for field in event_schema(Click).fields}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ODD = ["", " ", "a", "a/b", "..", "__unsafe__", "a=b", "50%", "%2F", "x\0", "é" * 99, "x" * 300]
NAMES = st.sampled_from(ODD) | TEXTS
LONGS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1])
TIMES = st.datetimes(timezones=st.just(UTC))
PRICES = st.decimals(-(10**6), 10**6, places=2)
JSON = st.recursive(
    st.none() | st.booleans() | LONGS | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
).map(json.dumps)
ITEMS = st.fixed_dictionaries(
    {"name": st.none() | TEXTS, "tags": st.none() | st.lists(st.none() | LONGS, max_size=3)}
)
PARTS = st.fixed_dictionaries(
    {"doc": st.none() | JSON, "at": st.none() | TIMES, "price": st.none() | PRICES}
)
VALUES = {
    "campaign": (pa.string(), NAMES),
    "odd name: 50% ü": (pa.string(), NAMES),
    "number": (pa.int64(), LONGS),
    "small": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "flag": (pa.bool_(), st.booleans()),
    "text": (pa.string(), NAMES),
    "blob": (pa.binary(), st.binary(max_size=20)),
    "double": (pa.float64(), st.floats() | st.just(-0.0)),
    "single": (pa.float32(), st.floats(width=32)),
    "time": (TIME, TIMES),
    "date": (pa.date32(), st.dates()),
    "price": (pa.decimal128(38, 18), st.decimals(-(10**19), 10**19, places=18)),
    "item": (ITEM, ITEMS),
    "items": (pa.list_(ITEM), st.lists(st.none() | ITEMS, max_size=3)),
    "by_name": (
        pa.map_(pa.string(), pa.list_(ITEM)),
        st.dictionaries(TEXTS, st.none() | st.lists(ITEMS, max_size=2), max_size=3),
    ),
    "doc": (pa.string(), JSON),
    "parts": (pa.list_(PART), st.lists(st.none() | PARTS, max_size=3)),
}
OPTIONAL = {name: st.none() | values for name, (_, values) in VALUES.items()}
ROWS = st.lists(st.fixed_dictionaries({"at": TIMES, **OPTIONAL}), min_size=1, max_size=4)


def opened(folder, partition_by, later=()):
    columns = {"id": pa.int64()}
    columns |= {name: kind for name, (kind, _) in VALUES.items() if name not in later}
    unique = Unique(by=["id"], within=timedelta(hours=1))
    declared = {"unique": unique, "unsafe_values": UnsafeValues.RESCUE}
    rows = spec(f"{folder}/clicks", columns, *partition_by, **declared)
    return Writer(replace(rows, any_fields=fields_with_any(CLICK, rows.schema)))


@settings(max_examples=25, deadline=None)
@given(
    values=ROWS,
    partition_by=st.lists(st.sampled_from(PARTITIONS), unique=True, max_size=3),
    later=st.sets(st.sampled_from(LATER)),
)
def test_rows_that_are_sent_again_are_duplicates_whatever_their_values(values, partition_by, later):
    rows = [{**row, "id": number} | dict.fromkeys(later) for number, row in enumerate(values)]
    all_are_duplicates = ([row["id"] for row in rows], [])
    with tempfile.TemporaryDirectory() as folder:
        # It knows the slices of these rows, and reads the files that come later.
        beside = opened(folder, partition_by)
        beside.name = "beside"
        beside.add([row | {"id": -1} for row in rows])
        assert opened(folder, partition_by, later).add(rows) == ([], [])
        assert beside.add(rows) == all_are_duplicates
        table = opened(folder, partition_by)
        table.batch = 0
        assert table.add(rows) == all_are_duplicates
        table.compact()
        DeltaTable(table.spec.root).create_checkpoint()
        table.open()
        assert table.add(rows) == all_are_duplicates
