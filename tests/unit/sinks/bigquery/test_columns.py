"""Columns of BigQuery: which type is made of which, and values within values."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.model.event import event_schema
from headrace.pipelines.source.record_columns import row_columns
from headrace.sinks.bigquery.columns import TableColumn, column_for, difference
from headrace.sinks.bigquery.conversion import RowForm


def declared(kind, name="c"):
    return column_for(name, kind, None)


@pytest.mark.parametrize(
    ("kind", "type_", "mode"),
    [
        (pa.int16(), "INTEGER", "NULLABLE"),
        (pa.uint32(), "INTEGER", "NULLABLE"),
        (pa.float32(), "FLOAT", "NULLABLE"),
        (pa.large_string(), "STRING", "NULLABLE"),
        (pa.binary(4), "BYTES", "NULLABLE"),
        (pa.timestamp("ms"), "DATETIME", "NULLABLE"),
        (pa.timestamp("ms", "+02:00"), "TIMESTAMP", "NULLABLE"),
        (pa.decimal128(38, 9), "NUMERIC", "NULLABLE"),
        (pa.decimal128(38, 8), "BIGNUMERIC", "NULLABLE"),
        (pa.decimal128(20, 10), "BIGNUMERIC", "NULLABLE"),
        (pa.list_(pa.date32()), "DATE", "REPEATED"),
        (pa.large_list(pa.list_(pa.date32())), "JSON", "NULLABLE"),
        (pa.list_(pa.map_(pa.string(), pa.int8())), "JSON", "REPEATED"),
        (pa.map_(pa.int64(), pa.string()), "JSON", "NULLABLE"),
    ],
)
def test_each_type_has_its_column(kind, type_, mode):
    column = declared(kind)
    assert (column.type, column.mode) == (type_, mode)


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.uint64(), pa.time64("us"), pa.duration("us"), pa.null()),
        *(pa.list_(pa.time64("us")), pa.struct([]), pa.struct([("t", pa.null())])),
    ],
)
def test_types_that_bigquery_lacks_have_none(kind):
    assert declared(kind) is None


@pytest.mark.parametrize(
    ("there", "kind", "is_taken"),
    [
        (TableColumn("c", "BIGNUMERIC"), pa.decimal128(38, 9), True),
        (TableColumn("c", "NUMERIC"), pa.decimal128(38, 10), False),
        (TableColumn("c", "NUMERIC", scale=2), pa.decimal128(9, 2), True),
        (TableColumn("c", "NUMERIC", scale=2), pa.decimal128(9, 3), False),
        (TableColumn("c", "JSON"), pa.list_(pa.int64()), True),
        (TableColumn("c", "JSON"), pa.struct([("a", pa.int64())]), True),
        (TableColumn("c", "JSON"), pa.int64(), False),
        (TableColumn("c", "DATETIME"), pa.timestamp("us", "UTC"), False),
        (TableColumn("c", "FLOAT"), pa.int64(), False),
        (
            TableColumn(
                "c", "RECORD", fields=(TableColumn("A", "INTEGER"), TableColumn("z", "STRING"))
            ),
            pa.struct([("a", pa.int64())]),
            True,
        ),
        (
            TableColumn("c", "RECORD", fields=(TableColumn("a", "STRING"),)),
            pa.struct([("a", pa.int64())]),
            False,
        ),
        (
            TableColumn(
                "c",
                "RECORD",
                fields=(TableColumn("a", "INTEGER"), TableColumn("z", "STRING", "REQUIRED")),
            ),
            pa.struct([("a", pa.int64())]),
            False,
        ),
        (TableColumn("c", "NUMERIC", "REPEATED", scale=2), pa.list_(pa.decimal128(9, 3)), False),
        (TableColumn("c", "NUMERIC", "REPEATED", scale=2), pa.list_(pa.decimal128(9, 2)), True),
    ],
)
def test_a_column_takes_what_it_keeps_as_it_is(there, kind, is_taken):
    assert (difference(there, declared(kind)) is None) == is_taken


class Part:
    note: str
    any: Any
    sizes: dict[str, Any]
    flags: list[bool] | None


class Whole:
    part: Part
    parts: list[Part]
    maybe_parts: list[Part] | None


def rows_of(*values):
    schema = event_schema(Whole)
    rows = pa.Table.from_pylist(list(values), row_columns(schema, ()))
    fields = {field.name: field for field in schema.fields}
    columns = {
        field.name: column_for(field.name, field.type, fields[field.name]) for field in rows.schema
    }
    return RowForm(columns, fields), rows


PART = {"note": "n", "any": '{"b": 1}', "sizes": [("s", "[1, 2]")], "flags": None}
FORM = {"note": "n", "any": '{"b": 1}', "sizes": '{"s":[1, 2]}', "flags": None}


def test_json_within_values_is_json_and_not_text():
    form, rows = rows_of(
        {"part": PART, "parts": [PART, PART], "maybe_parts": [PART]},
        {"part": None, "parts": [], "maybe_parts": None},
    )
    assert list(form.rejected(rows))
    assert not any(rejected.rows.any() for rejected in form.rejected(rows))
    first, second = form.converted(rows).to_pylist()
    text = '[{"note":"n","any":{"b": 1},"sizes":{"s":[1, 2]},"flags":null}]'
    assert first == {"part": FORM, "parts": [FORM, FORM], "maybe_parts": text}
    assert second == {"part": None, "parts": [], "maybe_parts": None}


def test_parts_of_a_table_are_converted_as_the_whole():
    """Slices of Arrow share the buffers of the whole."""
    values = [
        {"part": PART | {"note": str(n)}, "parts": [PART] * n, "maybe_parts": None}
        for n in range(6)
    ]
    form, rows = rows_of(*values)
    whole = form.converted(rows).to_pylist()
    parts = [form.converted(rows.slice(at, 2)) for at in (0, 2, 4)]
    assert pa.concat_tables(parts).to_pylist() == whole


def test_null_for_a_required_column_is_rejected_and_absence_of_its_struct_is_not():
    inner = TableColumn("a", "INTEGER", "REQUIRED")
    columns = {
        "s": TableColumn("s", "RECORD", fields=(inner,)),
        "n": TableColumn("n", "JSON", "REQUIRED"),
    }
    rows = pa.table(
        {
            "s": pa.array([{"a": 1}, {"a": None}, None], pa.struct([("a", pa.int64())])),
            "n": pa.array([[1], None, [2]], pa.list_(pa.int64())),
        }
    )
    faults = [
        (int(place), rejected.reason, rejected.detail)
        for rejected in RowForm(columns, {}).rejected(rows)
        for place in rejected.rows.nonzero()[0]
    ]
    assert faults == [
        (1, "missing-value", "column 's'.a is null"),
        (1, "missing-value", "column 'n' is null"),
    ]


def test_lists_in_structs_that_are_null_have_no_items():
    """Arrow may keep items behind a null."""
    lists = pa.array([[1], [None, 2], [None]], pa.list_(pa.int64()))
    mask = pa.array([False, True, False])
    rows = pa.table({"s": pa.StructArray.from_arrays([lists], ["l"], mask=mask)})
    form = RowForm({"s": declared(rows["s"].type, "s")}, {})
    faults = [
        (int(place), rejected.reason)
        for rejected in form.rejected(rows)
        for place in rejected.rows.nonzero()[0]
    ]
    assert faults == [(2, "null-in-array")]
    assert form.converted(rows.slice(0, 2))["s"].to_pylist()[0] == {"l": [1]}


@pytest.mark.parametrize(
    ("kind", "beyond", "details"),
    [
        (pa.timestamp("us", "UTC"), 400_000_000_000_000_000, "outside the years 1 to 9999"),
        (pa.date32(), -1_000_000, "outside the years 1 to 9999"),
        (pa.float64(), float("nan"), "NaN or infinity"),
    ],
)
def test_what_json_lacks_is_rejected_wherever_it_stands(kind, beyond, details):
    """In keys and items of maps, in lists of structs in them; of slices of a column, too."""
    good, odd = pa.array([0, 1]), pa.array([0, beyond], kind)
    structs = pa.StructArray.from_arrays([odd], ["t"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), structs)
    for keys, items in ((odd, good), (good, odd), (good, lists)):
        offsets = pa.array([0, 0, 1, 1, 2, 2], pa.int32())
        maps = pa.MapArray.from_arrays(offsets, keys, items)
        for start in range(3):
            rows = pa.table({"m": maps.slice(start)})
            form = RowForm({"m": column_for("m", maps.type, None)}, {})
            [fault] = [fault for fault in form.rejected(rows) if fault.rows.any()]
            assert list(fault.rows.nonzero()[0]) == [3 - start]
            assert (fault.reason, details in fault.detail) == ("wrong-value", True)
            form.converted(rows.filter(pa.array(~fault.rows)))


def test_decimals_in_json_keep_their_digits():
    kind = pa.list_(pa.list_(pa.decimal128(38, 20)))
    rows = pa.table({"m": pa.array([[[Decimal("123456789012345678.12345678901234567890")]]], kind)})
    form = RowForm({"m": column_for("m", kind, None)}, {})
    [row] = form.converted(rows).to_pylist()
    assert row == {"m": '[["123456789012345678.12345678901234567890"]]'}
