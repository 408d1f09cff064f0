"""What can be declared of an index, and what an index takes."""

import pyarrow as pa
import pytest

from headrace import OpenSearch, Unique, WriteMode
from headrace.errors import TableMismatchError
from headrace.model import EventField, EventSchema, FieldType, Metadata
from headrace.settings import Secret
from headrace.sinks.api import DeclaredRows, Guarantee, SinkContext
from headrace.sinks.opensearch.mapping import (
    keeps_documents,
    merged_fields,
    missing_fields,
    properties_of,
    unfit_fields,
)

COLUMNS = {
    "id": FieldType.STRING,
    "n": FieldType.LONG,
    "at": FieldType.TIMESTAMP,
    "price": FieldType.DOUBLE,
}
UPSERT = {"mode": WriteMode.UPSERT, "key": ("id",), "newest_by": "at"}
BY_ID = Unique(by=["id"])


def faults(columns=COLUMNS, event_time="at", fields=None, **declared):
    sink = OpenSearch(**{"index": "clicks"} | declared)
    rows = DeclaredRows(columns, event_time, fields=fields or {})
    return [fault.message for fault in sink.faults(rows)]


@pytest.mark.parametrize(
    "declared",
    [
        {},
        {"unique": BY_ID, "index_by": "day"},
        {"data_stream": True},
        UPSERT,
        UPSERT | {"newest_by": "n"},
        UPSERT | {"key": ["id"], "text": ["id"]},
    ],
)
def test_what_can_be_declared_has_no_faults(declared):
    assert faults(**declared) == []


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"index": "Clicks"}, "OpenSearch.index is 'Clicks'"),
        ({"index": None}, "OpenSearch.index is None"),
        ({"index": "headrace-positions"}, "'headrace-positions', where positions are"),
        ({"key": "id"}, "OpenSearch.key is 'id'"),
        ({"text": ["id", 7]}, "OpenSearch.text is ('id', 7)"),
        ({"mode": WriteMode.ADD}, "OpenSearch.mode is"),
        ({"mode": "append"}, "OpenSearch.mode is"),
        ({"key": ("id",)}, "are for UPSERT"),
        ({"newest_by": "at"}, "are for UPSERT"),
        ({"index_by": "week"}, "OpenSearch.index_by is 'week'"),
        ({"index_by": "day", "event_time": None}, "the topic declares none"),
        ({"data_stream": True, "event_time": None}, "the topic declares none"),
        ({"data_stream": "yes"}, "OpenSearch.data_stream is 'yes'"),
        ({"data_stream": True, "index_by": "day"}, "divides by rollover"),
        ({"columns": None}, "needs unique after steps"),
        ({"unique": ["id"]}, "OpenSearch.unique is"),
        ({"unique": Unique(by=["id"], ignore=["n"])}, "no within and no ignore"),
        ({"unique": Unique(by=["other"])}, "'other' is not a column"),
        ({"unique": Unique(by=["price"])}, "'price' is double, which is no part of an id"),
        (UPSERT | {"key": ()}, "needs a key"),
        (UPSERT | {"key": ("other",)}, "'other' is no column"),
        (UPSERT | {"newest_by": None}, "needs newest_by"),
        (UPSERT | {"newest_by": "price"}, "newest_by: 'price' is double"),
        (UPSERT | {"unique": BY_ID}, "OpenSearch.unique is for APPEND"),
        (UPSERT | {"index_by": "day"}, "OpenSearch.index_by is for APPEND"),
        (UPSERT | {"data_stream": True}, "OpenSearch.data_stream is for APPEND"),
    ],
)
def test_what_can_not_be_declared_is_named(declared, expected):
    assert any(expected in message for message in faults(**declared))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.b", "is a path"), ("", "is empty"), ("_id", "is a name of OpenSearch's own")],
)
def test_a_name_that_no_document_can_have_is_refused(name, expected):
    inner = EventSchema("Inner", (EventField(name, FieldType.STRING),))
    listed = EventField("", FieldType.STRUCT, schema=inner)
    field = EventField("items", FieldType.LIST, element=listed)
    columns = COLUMNS | {"items": FieldType.LIST}
    assert any(expected in text for text in faults(columns, fields={"items": field}))
    schema = pa.schema([("items", pa.list_(pa.struct([(name, pa.string())])))])
    with pytest.raises(TableMismatchError, match=expected):
        OpenSearch("clicks", unique=Unique(by=["items"])).changes(context(), schema)


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.time64("us"), pa.uint64(), pa.null()])
def test_a_column_that_no_field_takes_is_refused_at_any_depth(kind):
    for nested in (kind, pa.list_(kind), pa.map_(pa.string(), pa.struct([("a", kind)]))):
        with pytest.raises(TableMismatchError, match="of which OpenSearch has nothing"):
            OpenSearch("clicks").changes(context(), pa.schema([("x", nested)]))


@pytest.mark.parametrize(
    ("declared", "name", "kind"),
    [
        (UPSERT | {"newest_by": "version"}, "version", pa.float64()),
        (UPSERT | {"newest_by": "version"}, "version", pa.string()),
        (UPSERT | {"key": ("other",)}, "other", pa.binary()),
        ({"unique": Unique(by=["other"])}, "other", pa.struct([("a", pa.int64())])),
        ({"unique": BY_ID, "index_by": "day"}, "at", pa.string()),
    ],
)
def test_a_column_of_steps_that_is_no_part_of_an_id_version_or_time_is_refused(
    declared, name, kind
):
    columns = {"id": pa.int64(), "at": pa.timestamp("us", "UTC")} | {name: kind}
    with pytest.raises(TableMismatchError, match=f"column '{name}' is .*, which is no part of"):
        OpenSearch("clicks", **declared).open(context(), pa.schema(columns.items()))


def context():
    return SinkContext("p", "unused", {}, {"url": Secret("http://127.0.0.1:1")}, event_time="at")


def test_a_data_stream_needs_a_column_of_the_event_time_and_fills_its_field():
    stream = OpenSearch("clicks", unique=BY_ID, data_stream=True)
    columns = pa.schema([("id", pa.string())])
    for more, expected in (("x", "no column 'at'"), ("@timestamp", "rename it in a step")):
        rows = columns.append(pa.field(more, pa.timestamp("us", "UTC")))
        with pytest.raises(TableMismatchError, match=expected):
            stream.changes(context(), rows)
    assert stream.guarantee is Guarantee.AT_LEAST_ONCE
    assert OpenSearch("clicks").guarantee is Guarantee.EFFECTIVELY_ONCE


def test_only_an_id_of_the_record_needs_its_place():
    place = (Metadata.TOPIC_ID, Metadata.PARTITION, Metadata.OFFSET, Metadata.EVENT_INDEX)
    assert OpenSearch("clicks").wanted_metadata == place
    assert OpenSearch("clicks", unique=BY_ID).wanted_metadata == ()
    assert OpenSearch("clicks", **UPSERT).wanted_metadata == ()


def test_two_pipelines_write_to_an_index_in_one_way_alone():
    sink = OpenSearch("clicks", unique=BY_ID)
    assert list(sink.faults_beside(OpenSearch("clicks", unique=BY_ID))) == []
    listed = OpenSearch("clicks", text=["title"])
    assert list(listed.faults_beside(OpenSearch("clicks", text=("title",)))) == []
    assert hash(listed) == hash(OpenSearch("clicks", text=("title",)))
    [fault] = sink.faults_beside(OpenSearch("clicks"))
    assert "index 'clicks' is written by" in fault.message


SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("title", pa.string()),
        ("n", pa.int64()),
        ("small", pa.int16()),
        ("price", pa.decimal128(10, 2)),
        ("ratio", pa.float32()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("ok", pa.bool_()),
        ("raw", pa.binary()),
        ("more", pa.string()),
        ("items", pa.list_(pa.struct([("title", pa.string()), ("more", pa.list_(pa.string()))]))),
        ("tags", pa.map_(pa.string(), pa.string())),
    ]
)
KEPT = {"type": "object", "enabled": False}
MORE = EventField("more", FieldType.JSON)
ITEM = EventSchema("Item", (EventField("more", FieldType.LIST, element=MORE),))
FIELDS = {
    "more": MORE,
    "items": EventField(
        "items", FieldType.LIST, element=EventField("", FieldType.STRUCT, schema=ITEM)
    ),
}


def rendered():
    return properties_of(SCHEMA, FIELDS, ("title", "items.title"))


def test_columns_become_fields_that_keep_their_values():
    assert rendered() == {
        "id": {"type": "keyword"},
        "title": {"type": "text"},
        "n": {"type": "long"},
        "small": {"type": "integer"},
        "price": {"type": "double"},
        "ratio": {"type": "float"},
        "at": {"type": "date"},
        "day": {"type": "date"},
        "ok": {"type": "boolean"},
        "raw": {"type": "binary"},
        "more": KEPT,
        "items": {"properties": {"title": {"type": "text"}, "more": KEPT}},
        "tags": KEPT,
    }


def test_fields_that_are_missing_are_found_at_any_depth():
    there = rendered()
    assert missing_fields(there, there) == {}
    del there["n"]
    there["items"] = {"type": "nested", "properties": {"title": {"type": "keyword"}}}
    expected = {"n": {"type": "long"}, "items": {"properties": {"more": KEPT}}}
    assert missing_fields(rendered(), there) == expected
    assert missing_fields(rendered(), rendered() | {"items": KEPT}) == {}


def test_fields_of_others_stay_beside_those_that_are_missing():
    other = {"type": "ip"}
    there = {
        "of_others": other,
        "at": {"type": "date_nanos"},
        "n": {"type": "date"},
        "day": {"type": "date", "format": "epoch_millis"},
        "items": {"type": "nested", "properties": {"of_others": other}},
        "more": {"type": "flat_object"},
    }
    merged = merged_fields(rendered(), there)
    assert missing_fields(rendered(), merged) == {}
    assert list(unfit_fields(rendered(), merged)) == []
    fields = rendered()["items"]["properties"] | {"of_others": other}
    kept = {name: there[name] for name in ("of_others", "at", "more")}
    assert merged == rendered() | kept | {"items": {"type": "nested", "properties": fields}}
    assert merged_fields(rendered(), merged) == merged


@pytest.mark.parametrize(
    ("source", "keeps"),
    [({}, True), ({"enabled": True}, True), ({"enabled": False}, False), ({"excludes": []}, False)],
)
def test_an_index_keeps_documents_unless_its_source_is_cut(source, keeps):
    assert keeps_documents({"_source": source, "properties": {}}) is keeps


@pytest.mark.parametrize(
    "there",
    [
        {"id": {"type": "text"}, "small": {"type": "long"}, "at": {"type": "date_nanos"}},
        {"items": {"type": "nested"}, "tags": {"type": "flat_object"}, "ratio": {"type": "double"}},
        {"items": KEPT},
        {"at": {"type": "date", "format": "epoch_millis||strict_date_optional_time"}},
    ],
)
def test_other_types_that_keep_the_values_are_taken(there):
    assert list(unfit_fields(rendered(), there)) == []


@pytest.mark.parametrize(
    "there",
    [
        {"id": {"type": "long"}},
        {"n": {"type": "integer"}},
        {"n": {"type": "double"}},
        {"price": {"type": "float"}},
        {"price": {"type": "long"}},
        {"items": {"type": "keyword"}},
        {"items": {"properties": {"title": {"type": "date"}}}},
        {"tags": {"properties": {"a": {"type": "keyword"}}}},
        {"ok": {"properties": {}}},
        {"at": {"type": "date", "format": "epoch_millis"}},
    ],
)
def test_a_type_that_changes_or_refuses_values_is_not_taken(there):
    assert len(list(unfit_fields(rendered(), there))) == 1
