"""What another engine gives a table is fulfilled by headrace's writer, or refused by name."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from tests.unit.sinks.lake.delta.test_table import spec, written

from headrace.errors import SinkError, TableMismatchError
from headrace.sinks.api import Transaction
from headrace.sinks.lake.delta.table import LakeTable, read_table
from headrace.sinks.lake.upkeep.compaction import Compaction
from headrace.sinks.lake.upkeep.merging import FileMerger

IDS = {"id": pa.int64()}
MODE = "delta.columnMapping.mode"
COLUMN_ID = "delta.columnMapping.id"
PHYSICAL_NAME = "delta.columnMapping.physicalName"
INVARIANT = {"delta.invariants": json.dumps({"expression": {"expression": "id < 10"}})}
IDENTITY = {"delta.identity.start": 1, "delta.identity.step": 1}
GENERATED = {"delta.generationExpression": "id * 2"}


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "impressions")


def legacy(reader, writer):
    return {"minReaderVersion": reader, "minWriterVersion": writer}


def listed(*features, reader=()):
    versions = legacy(3, 7) | {"readerFeatures": list(reader)} if reader else legacy(1, 7)
    return versions | {"writerFeatures": list(features)}


def create(root, properties=None):
    columns = [Field("at", PrimitiveType("timestamp")), Field("id", PrimitiveType("long"))]
    DeltaTable.create(root, Schema(columns), configuration=properties)


def alter(root, protocol, properties=(), metadata=(), **column):
    """Commits a protocol and metadata as another engine would; ``metadata``: of column id."""
    table = DeltaTable(root)
    schema = json.loads(table.schema().to_json())
    field = next(field for field in schema["fields"] if field["name"] == "id")
    field |= {"metadata": dict(metadata), **column}
    if MODE in dict(properties):
        for number, each in enumerate(schema["fields"]):
            each["metadata"] = {COLUMN_ID: number, PHYSICAL_NAME: f"c-{number}"}
    changed = {
        "id": "another",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": table.metadata().partition_columns,
        "configuration": dict(properties),
    }
    actions = [{"protocol": protocol}, {"metaData": changed}]
    path = Path(root, "_delta_log", f"{table.version() + 1:020}.json")
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def commit(table, root, number, before):
    files = written(spec(root, IDS), {"id": number})
    return table.commit(files, Transaction({"a": number}, {"a": before}))


def ids(root):
    return sorted(read_table(root)["id"].to_pylist())


MAPPING = {"properties": {MODE: "name", "delta.columnMapping.maxColumnId": "9"}}
CHECK = {"properties": {"delta.constraints.small": "id < 10"}}
REFUSED = [
    ("column mapping by name", legacy(2, 5), MAPPING),
    ("column mapping by name", listed("columnMapping", reader=["columnMapping"]), MAPPING),
    ("the NOT NULL column 'id'", legacy(1, 2), {"nullable": False}),
    ("the CHECK constraint 'small'", legacy(1, 3), CHECK),
    ("the CHECK constraint 'small'", listed("checkConstraints"), CHECK),
    ("an invariant of column 'id'", legacy(1, 2), {"metadata": INVARIANT}),
    ("an invariant of column 'id'", listed("invariants"), {"metadata": INVARIANT}),
    ("the generated column 'id'", legacy(1, 4), {"metadata": GENERATED}),
    ("the identity column 'id'", listed("identityColumns"), {"metadata": IDENTITY}),
    ("the table feature 'rowTracking'", listed("rowTracking"), {}),
    ("the table feature 'inCommitTimestamp'", listed("inCommitTimestamp"), {}),
    ("the table feature 'icebergCompatV2'", listed("icebergCompatV2"), {}),
    (
        "the table feature 'vacuumProtocolCheck'",
        listed("vacuumProtocolCheck", reader=["vacuumProtocolCheck"]),
        {},
    ),
    ("the table feature 'notKnownYet'", listed("notKnownYet"), {}),
]
FULFILLED = [
    *(legacy(1, version) for version in range(1, 7)),
    listed("appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns"),
    listed("changeDataFeed"),
    listed("deletionVectors", reader=["deletionVectors"]),
    listed("timestampNtz", reader=["timestampNtz"]),
    listed("v2Checkpoint", reader=["v2Checkpoint"]),
    listed("variantType", reader=["variantType"]),
]


@pytest.mark.parametrize(("feature", "protocol", "changed"), REFUSED)
def test_a_table_that_asks_more_is_refused_at_the_start(root, feature, protocol, changed):
    create(root)
    alter(root, protocol, **changed)
    with pytest.raises(TableMismatchError, match=feature):
        LakeTable(spec(root, IDS)).check()


@pytest.mark.parametrize(("feature", "protocol", "changed"), REFUSED)
def test_a_feature_that_comes_under_a_writer_stops_it(root, feature, protocol, changed):
    table = LakeTable(spec(root, IDS))
    commit(table, root, 0, None)
    alter(root, protocol, **changed)
    with pytest.raises(SinkError, match=feature):
        commit(table, root, 99, 0)
    assert DeltaTable(root).version() == 1


@pytest.mark.parametrize(("feature", "protocol", "changed"), REFUSED)
def test_a_table_that_asks_more_is_not_merged(root, feature, protocol, changed):
    create(root)
    alter(root, protocol, **changed)
    with pytest.raises(SinkError, match=feature):
        Compaction(root).run()


@pytest.mark.parametrize("protocol", FULFILLED)
def test_features_that_ask_nothing_of_who_adds_files_stop_nobody(root, protocol):
    table = LakeTable(spec(root, IDS))
    commit(table, root, 0, None)
    alter(root, protocol)
    table.check()
    assert commit(table, root, 1, 0)
    assert commit(LakeTable(spec(root, IDS)), root, 2, 1)
    assert ids(root) == [0, 1, 2]


def test_features_inside_of_nested_columns_are_seen(root):
    create(root)
    inner = {"name": "n", "type": "long", "nullable": True, "metadata": INVARIANT}
    struct = {"type": "struct", "fields": [inner]}
    nested = {"type": "array", "elementType": struct, "containsNull": True}
    alter(root, legacy(1, 2), type=nested)
    with pytest.raises(TableMismatchError, match="an invariant of column 'n'"):
        LakeTable(spec(root, IDS)).check()


def test_a_writer_version_beyond_the_last_known_is_refused(root, monkeypatch):
    create(root)
    protocol = DeltaTable(root).protocol()._replace(min_writer_version=8)
    monkeypatch.setattr(DeltaTable, "protocol", lambda _: protocol)
    with pytest.raises(TableMismatchError, match="writer version 8"):
        LakeTable(spec(root, IDS)).check()


def test_readers_of_changes_see_rows_once_and_no_merges(root):
    create(root, {"delta.enableChangeDataFeed": "true"})
    table = LakeTable(spec(root, IDS))
    commit(table, root, 1, None)
    commit(table, root, 2, 1)
    assert Compaction(root).run().merged == 2
    changes = pa.table(DeltaTable(root).load_cdf(starting_version=1).read_all())
    found = zip(changes["id"].to_pylist(), changes["_change_type"].to_pylist(), strict=True)
    assert sorted(found) == [(1, "insert"), (2, "insert")]


def test_a_column_that_differs_in_case_only_is_refused_at_the_start(root):
    create(root)
    declared = LakeTable(spec(root, {"ID": pa.int64()}))
    with pytest.raises(TableMismatchError, match="'ID' of the rows is 'id' in the table"):
        declared.check()


def test_a_merge_gives_way_to_deletion_vectors_that_came_since_it_has_read(root, monkeypatch):
    """They take rows from a file and keep its path: merged, the rows would be back."""
    table = LakeTable(spec(root, IDS))
    commit(table, root, 0, None)
    commit(table, root, 1, 0)
    merge_all = FileMerger.merge_all

    def before_deletion_vectors(merger, groups):
        merges = merge_all(merger, groups)
        alter(root, listed("deletionVectors", reader=["deletionVectors"]))
        return merges

    monkeypatch.setattr(FileMerger, "merge_all", before_deletion_vectors)
    with pytest.raises(SinkError, match="reader version 3"):
        Compaction(root).run()
    assert DeltaTable(root).version() == 2
    assert ids(root) == [0, 1]
