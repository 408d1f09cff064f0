"""Maps with keys of any type, as steps make them: JSON has texts for names."""

import csv
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace import Topic
from headrace.sinks.kafka.records import RecordsOf
from headrace.sinks.postgres.rows.copying import copyable, csv_of
from headrace.sinks.row_json import row_json

DAY = date(2026, 11, 24)
PLACE = pa.struct([("x", pa.int64()), ("of", pa.list_(pa.string()))])
KEYS = [
    (pa.string(), "a", "a"),
    (pa.int64(), 2**62, "4611686018427387904"),
    (pa.float64(), 1.5, "1.5"),
    (pa.date32(), DAY, "2026-11-24"),
    (pa.timestamp("us", "UTC"), datetime(2026, 11, 24, tzinfo=UTC), "2026-11-24T00:00:00Z"),
    (pa.binary(), b"x", "eA=="),
    (pa.bool_(), True, "true"),
    (pa.decimal128(5, 2), Decimal("1.50"), "1.50"),
    (pa.list_(pa.int64()), [1, None], "[1,null]"),
    (PLACE, {"x": 1, "of": ["a"]}, '{"x":1,"of":["a"]}'),
]


@pytest.mark.parametrize(("kind", "key", "name"), KEYS)
def test_a_key_of_any_type_is_a_name_of_json(kind, key, name):
    column = pa.map_(kind, pa.int64())
    inner = pa.struct([("m", column), ("n", pa.int64())])
    schema = pa.schema([("m", column), ("deep", pa.list_(pa.map_(pa.string(), inner)))])
    row = {"m": [(key, 1), (key, 2)], "deep": [[("z", {"m": [(key, 3)], "n": 4}), ("y", None)]]}
    rows = pa.Table.from_pylist([row], schema)
    texts = next(csv.reader(io.StringIO(csv_of(copyable(rows, {})).decode())))
    written = dict(zip(rows.column_names, map(json.loads, texts), strict=True))
    expected = {"m": {name: 2}, "deep": [{"z": {"m": {name: 3}, "n": 4}, "y": None}]}
    assert json.loads(row_json(rows)) == written == expected


class Counts:
    counts: dict[str, int]


@pytest.mark.parametrize(("kind", "key", "name"), KEYS)
def test_a_record_has_such_a_key_as_a_name(kind, key, name):
    schema = pa.schema([("counts", pa.map_(kind, pa.int64()))])
    rows = pa.Table.from_pylist([{"counts": [(key, 1)]}], schema)
    records, rejected = RecordsOf(Topic("counts", event=Counts)).of(rows)
    assert (json.loads(records[0].value), rejected) == ({"counts": {name: 1}}, [])
