"""What a task hands to the end of its batch of the rows that its sink rejects."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa

from headrace.pipelines.batch.manifest import Manifest, write_rows
from headrace.pipelines.source.reading.bad_records import MAX_BYTES
from headrace.sinks.api import RejectedRow


class RejectsAll:
    """A sink's writer that takes no row."""

    def __init__(self, task_id):
        del task_id

    def write(self, rows):
        return [RejectedRow(index, "wrong-value", "no") for index in range(rows.num_rows)]

    def close(self):
        return []

    def abort(self):
        pass


def manifest_of(*tables):
    return Manifest.of(write_rows(RejectsAll, tables, "clicks").to_pylist())


def test_rejected_rows_beyond_what_the_driver_has_room_for_are_only_counted():
    size, count = MAX_BYTES // 16, 40
    manifest = manifest_of(*[pa.table({"text": ["x" * size]}) for _ in range(count)])
    assert len(manifest.dead) + manifest.omitted == count
    carried = sum(len(letter.value) for letter in manifest.dead)
    assert MAX_BYTES < carried < MAX_BYTES + 2 * size


def test_a_few_rejected_rows_are_carried():
    manifest = manifest_of(pa.table({"n": [1, 2]}))
    assert [json.loads(letter.value) for letter in manifest.dead] == [{"n": 1}, {"n": 2}]
    assert {letter.offset for letter in manifest.dead} == {-1}
    assert manifest.omitted == 0


def test_a_row_of_any_types_is_json():
    item = pa.struct([("labels", pa.map_(pa.string(), pa.float64())), ("raw", pa.binary())])
    columns = pa.schema(
        [
            ("at", pa.timestamp("us", "UTC")),
            ("ratio", pa.float64()),
            ("price", pa.decimal128(5, 2)),
            ("by_number", pa.map_(pa.int64(), pa.binary())),
            ("by_bytes", pa.map_(pa.binary(), pa.int64())),
            ("items", pa.list_(item)),
        ]
    )
    row = {
        "at": datetime(2026, 11, 22, tzinfo=UTC),
        "ratio": float("nan"),
        "price": Decimal("1.50"),
        "by_number": [(1, b"\xff")],
        "by_bytes": [(b"\xff", 1)],
        "items": [{"labels": [("x", float("inf"))], "raw": b"\x00"}],
    }
    [letter] = manifest_of(pa.Table.from_pylist([row], columns)).dead

    def refuse(constant):
        raise AssertionError(constant)

    assert json.loads(letter.value, parse_constant=refuse) == {
        "at": "2026-11-22T00:00:00Z",
        "ratio": None,
        "price": "1.50",
        "by_number": {"1": "/w=="},
        "by_bytes": {"/w==": 1},
        "items": [{"labels": {"x": None}, "raw": "AA=="}],
    }
