"""Rows as documents, without a server."""

import json

import pyarrow as pa
import pytest

from headrace.sinks.opensearch.documents import DocumentSpec, documents_of
from headrace.sinks.opensearch.index_name import IndexBy

BY_ID = DocumentSpec("clicks", None, None, ("id",), None)


def test_a_time_beyond_the_calendar_is_rejected_where_python_would_have_to_hold_it():
    time = pa.timestamp("us", "UTC")
    struct = pa.struct([("raw", pa.binary()), ("at", time)])
    beyond = pa.array([0, 2**60], pa.int64()).cast(time)
    column = pa.StructArray.from_arrays([pa.array([b"a", b"b"]), beyond], fields=list(struct))
    documents = documents_of(pa.table({"id": [1, 2], "more": column}), BY_ID)
    assert [(row.index, row.reason, row.detail) for row in documents.rejected] == [
        (1, "wrong-value", "column 'more' has a time outside the years 1 to 9999"),
    ]
    [line] = documents.lines.to_list()
    action, source = map(json.loads, line.splitlines())
    assert action == {"create": {"_index": "clicks", "_id": "1"}}
    assert source == {"id": 1, "more": {"raw": "YQ==", "at": "1970-01-01T00:00:00Z"}}


def test_a_time_that_names_no_index_is_rejected():
    times = pa.array([0, 2**58, -(2**57), None], pa.int64()).cast(pa.timestamp("us", "UTC"))
    spec = DocumentSpec("clicks", IndexBy.DAY, "at", ("id",), None)
    documents = documents_of(pa.table({"id": [1, 2, 3, 4], "at": times}), spec)
    assert [(row.index, row.reason, row.detail) for row in documents.rejected] == [
        (1, "wrong-value", "column 'at' has a time outside the years 0 to 9999"),
        (2, "wrong-value", "column 'at' has a time outside the years 0 to 9999"),
        (3, "missing-value", "column 'at' is null"),
    ]


def test_of_rows_with_one_id_the_first_is_sent_and_of_an_upsert_the_newest():
    rows = pa.table({"id": [1, 2, 1, 1], "version": [5, 1, 7, 7], "name": ["a", "b", "c", "d"]})
    appended = documents_of(rows, BY_ID)
    assert (appended.rows.tolist(), appended.left_out) == ([0, 1], 2)
    upserted = documents_of(rows, DocumentSpec("clicks", None, None, ("id",), "version"))
    assert (upserted.rows.tolist(), upserted.left_out) == ([1, 3], 2)


def test_names_that_polars_takes_for_patterns_are_names():
    pairs = pa.map_(pa.int64(), pa.int64())
    values = {"id": [1], "^.*$": [2], "*": [3], "^x$": [[(4, 4)]], "x": [[(5, 5)]]}
    kinds = {"id": pa.int64(), "^.*$": pa.int64(), "*": pa.int64(), "^x$": pairs, "x": pairs}
    for key in ("id", "^.*$", "*"):
        spec = DocumentSpec("clicks", None, None, (key, "id"), "*")
        [line] = documents_of(pa.table(values, pa.schema(kinds.items())), spec).lines.to_list()
        action, source = map(json.loads, line.splitlines())
        assert action["index"]["_id"] == f"[{values[key][0]},1]"
        assert source == {"id": 1, "^.*$": 2, "*": 3, "^x$": {"4": 4}, "x": {"5": 5}}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.int32()])
def test_a_map_is_an_object_whatever_layout_its_keys_have(kind):
    pairs = [("1", 1), ("2", None)] if kind != pa.int32() else [(1, 1), (2, None)]
    columns = pa.schema([("id", pa.int64()), ("map", pa.map_(kind, pa.int64()))])
    rows = pa.table({"id": [1, 2], "map": [pairs, None]}, columns)
    sources = [json.loads(line.splitlines()[1]) for line in documents_of(rows, BY_ID).lines]
    assert [source["map"] for source in sources] == [{"1": 1, "2": None}, None]
