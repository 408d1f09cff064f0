"""Iceberg tables in a SQL catalog and a folder of this machine."""

import http.server
import json
import os
import socket
import threading
import time
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ServerError
from pyiceberg.expressions import GreaterThanOrEqual
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.statistics import PartitionStatisticsFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate
from pyiceberg.transforms import HourTransform
from pyiceberg.typedef import Record
from pyiceberg.types import StringType, TimeType

from headrace import Delta, Iceberg, Lake, UnsafeValues
from headrace.errors import SinkError, SinkUnavailableError, TableMismatchError
from headrace.settings import Secret
from headrace.sinks.api import DeclaredRows, SinkContext, Transaction
from headrace.sinks.lake.iceberg.catalog.catalogs import CatalogTable
from headrace.sinks.lake.iceberg.catalog.rest import RestCatalog
from headrace.sinks.lake.iceberg.catalog.settings import CATALOGS, known_settings
from headrace.sinks.lake.iceberg.upkeep import upkeep_of
from headrace.storage.files import local_path
from headrace.testing import SinkContract, SinkLab
from headrace.testing.sink_lab import COLUMNS, NOON, batch, row, schema, written

WRITER = {"pipeline": "p"}
TABLE = Lake("clicks", format=Iceberg())
TABLE_BESIDE = replace(TABLE, table="beside")
HOURLY = replace(TABLE, partition_by=["day", "hour", "name"])


@pytest.fixture
def context(tmp_path):
    return SinkContext("p", str(tmp_path / "the lake"), {}, event_time="at")


@pytest.fixture
def lab(context):
    lab = lab_of(TABLE, context)
    yield lab
    lab.close()


def lab_of(sink, context):
    def read():
        found = loaded(context)
        return [] if found is None else sink.read(context).to_pylist()

    return SinkLab(sink, context, read=read, stored=lambda: orphans(context), leftovers_stay=True)


def place(context, name="clicks"):
    return CatalogTable.of(context, "default", name)


def loaded(context):
    return place(context).load()


def data_files(context):
    return list(Path(context.lake).rglob("*.parquet"))


def orphans(context):
    table = loaded(context)
    live = 0 if table is None else len(list(table.scan().plan_files()))
    return len(data_files(context)) - live


def commit(driver, number, *rows, metadata=WRITER):
    versions, expected = {"app": number}, {"app": number - 1 if number else None}
    return driver.commit(written(driver, *rows), Transaction(versions, expected, metadata), 0)


class TestUnpartitioned(SinkContract):
    @pytest.fixture
    def lab(self, lab):
        return lab


class TestPartitioned(SinkContract):
    @pytest.fixture
    def lab(self, context):
        sink = replace(TABLE, partition_by=["hour"])
        lab = lab_of(sink, context)
        yield lab
        lab.close()


class TestCommits:
    def test_a_batch_is_a_snapshot_with_its_positions_and_metadata(self, lab):
        commit(lab.open(), 0, row(1), metadata=WRITER | {"offsets": {"t/0": [0, 1]}})
        table = loaded(lab.context)
        summary = table.current_snapshot().summary
        assert json.loads(summary["headrace.positions"]) == {"": {"app": 0}}
        assert json.loads(summary["headrace.metadata"]) == WRITER
        assert table.properties["headrace.version.app"] == "0"

    def test_a_commit_without_rows_is_fenced_as_any_other(self, lab):
        first, second = lab.open(), lab.open()
        assert first.commit([], batch(0), 0).is_new
        with pytest.raises(SinkError, match="other positions"):
            second.commit([], Transaction({"app": 7}, {"app": None}), 0)

    def test_files_of_another_writer_in_between_are_kept(self, lab):
        driver = lab.open()
        commit(driver, 0, row(1))
        loaded(lab.context).append(pa.Table.from_pylist([row(100)], schema()))
        assert commit(driver, 1, row(2)).is_new
        assert lab.ids() == [1, 2, 100]

    def test_what_others_change_in_properties_and_files_leaves_positions(self, lab):
        driver = lab.open()
        for number in range(4):
            commit(driver, number, row(number))
        other = loaded(lab.context)
        other.overwrite(other.scan().to_arrow())
        with other.transaction() as transaction:
            transaction.set_properties({"owner": "ads"})
        old = [snapshot.snapshot_id for snapshot in other.metadata.snapshots[:-1]]
        other.maintenance.expire_snapshots().by_ids(old).commit()
        assert commit(driver, 4, row(4)).is_new
        again = lab.open()
        assert not commit(again, 4, row(4)).is_new
        assert lab.ids() == [0, 1, 2, 3, 4]

    def test_two_pipelines_write_one_table(self, lab, context):
        other = TABLE.open(replace(context, pipeline="q"), schema())
        driver = lab.open()
        commit(driver, 0, row(1))
        other.commit(written(other, row(2)), Transaction({"b": 5}, {"b": None}), 0)
        commit(driver, 1, row(3))
        other.close(0.0)
        assert lab.ids() == [1, 2, 3]
        assert driver.positions.versions(["app", "b"]) == {"app": 1, "b": 5}

    def test_positions_of_partitions_share_the_name_of_their_topic_in_the_summary(self, lab):
        many = {f"p/1/t/{number}": number for number in range(3)}
        driver = lab.open()
        driver.commit([], Transaction(many, dict.fromkeys(many)), 0)
        summary = loaded(lab.context).current_snapshot().summary
        assert json.loads(summary["headrace.positions"]) == {"p/1/t": {"0": 0, "1": 1, "2": 2}}
        assert driver.positions.versions(many) == many

    def test_a_commit_that_was_sent_keeps_its_files_where_it_is_discarded(self, lab):
        driver = lab.open()
        pieces = written(driver, row(1))
        driver.commit(pieces, batch(0), 0)
        driver.discard(pieces)
        assert lab.ids() == [1]

    def test_a_table_that_was_dropped_is_not_made_by_a_commit(self, lab):
        driver = lab.open()
        commit(driver, 0, row(1))
        place(lab.context).open_catalog().drop_table(("default", "clicks"))
        again = lab.open()
        with pytest.raises(SinkError, match="has replaced rows"):
            commit(driver, 1, row(2))
        assert again.positions.versions(["app"]) == {}


class TestRollback:
    def rolled_back(self, lab, driver):
        for number in range(4):
            commit(driver, number, row(number))
        table = loaded(lab.context)
        target = table.metadata.snapshots[1].snapshot_id
        table.manage_snapshots().rollback_to_snapshot(target).commit()

    def test_a_running_driver_is_refused(self, lab):
        driver = lab.open()
        self.rolled_back(lab, driver)
        with pytest.raises(SinkError, match="a rollback"):
            commit(driver, 4, row(4))
        assert lab.ids() == [0, 1]

    def test_it_is_known_what_the_table_recorded_before_and_after(self, lab):
        driver = lab.open()
        store = TABLE.position_store(lab.context)
        self.rolled_back(lab, driver)
        restored = store.restored(WRITER)
        assert restored.to.versions(["app", "other"]) == {"app": 1}
        assert restored.at.versions(["app"]) == {"app": 3}
        assert store.restored({"pipeline": "other"}) is None

    def test_a_position_that_no_snapshot_tells_any_more_is_not_guessed(self, lab):
        driver = lab.open()
        driver.commit([], Transaction({"quiet": 7}, {"quiet": None}), 0)
        self.rolled_back(lab, driver)
        table = loaded(lab.context)
        first, head = (snapshot.snapshot_id for snapshot in table.metadata.snapshots[:2])
        assert table.current_snapshot().snapshot_id == head
        table.maintenance.expire_snapshots().by_id(first).commit()
        then = TABLE.position_store(lab.context).restored(WRITER).to
        assert then.versions(["app", "quiet", "never"]) == {"app": 0, "quiet": 7}
        with loaded(lab.context).transaction() as transaction:
            transaction.set_properties({"headrace.version.moved": "9"})
            summary = {"headrace.positions": json.dumps({"": {"moved": 9}})}
            transaction.update_snapshot(summary, branch="gone").fast_append().commit()
        with pytest.raises(SinkError, match="have expired"):
            TABLE.position_store(lab.context).restored(WRITER).to.versions(["moved"])

    def test_the_pipeline_may_commit_once_it_was_started_again(self, lab):
        self.rolled_back(lab, lab.open())
        assert commit(lab.open(), 4, row(9)).is_new
        assert TABLE.position_store(lab.context).restored(WRITER) is None


class TestColumns:
    def open(self, context, fields, sink=TABLE):
        return sink.open(context, pa.schema(fields))

    def write(self, driver, number, **values):
        writer = driver.writers("a" * 32)
        writer.write(pa.Table.from_pylist([values], driver.writers.args[0].schema))
        expected = {"app": number - 1 if number else None}
        driver.commit(writer.close(), Transaction({"app": number}, expected), 0)

    def test_new_columns_and_wider_numbers(self, context):
        inner = pa.struct([("a", pa.int32())])
        first = self.open(context, [("id", pa.int32()), ("s", inner), ("l", pa.list_(inner))])
        self.write(first, 0, id=1, s={"a": 1}, l=[{"a": 2}])
        wider = pa.struct([("a", pa.int64()), ("b", pa.string())])
        fields = [("id", pa.int64()), ("s", wider), ("l", pa.list_(wider)), ("x", pa.float64())]
        assert TABLE.changes(context, pa.schema(fields)) == [
            "widens column 'id' from integer to long",
            "widens column 's.a' from integer to long",
            "gets column 's.b', string",
            "widens column 'l[].a' from integer to long",
            "gets column 'l[].b', string",
            "gets column 'x', double",
        ]
        second = self.open(context, fields)
        self.write(second, 1, id=2**40, s={"a": 3, "b": "b"}, l=[], x=0.5)
        assert sorted(TABLE.read(context).to_pylist(), key=lambda values: values["id"]) == [
            {"id": 1, "s": {"a": 1, "b": None}, "l": [{"a": 2, "b": None}], "x": None},
            {"id": 2**40, "s": {"a": 3, "b": "b"}, "l": [], "x": 0.5},
        ]
        first.close(0.0), second.close(0.0)

    @pytest.mark.parametrize("kind", [pa.struct([("b", pa.int64())]), None])
    def test_two_fields_of_one_name_are_refused(self, context, kind):
        inner = kind or pa.list_(pa.struct([("b", pa.int64())]))
        name = "a.b" if kind else "a.element.b"
        columns = pa.schema([(name, pa.int64()), ("a", inner)])
        for asked in (TABLE.changes, TABLE.open):
            with pytest.raises(TableMismatchError, match="have one name in Iceberg"):
                asked(context, columns)

    def test_short_numbers_have_32_bits(self, context):
        parts = pa.struct([("b", pa.int8()), ("m", pa.map_(pa.int16(), pa.int8()))])
        lists = [("l", pa.list_(parts)), ("ll", pa.large_list(pa.int8()))]
        fields = [("id", pa.int16()), ("b", pa.int8()), *lists]
        values = {"id": 7, "b": -1, "l": [{"b": 1, "m": [(2, 3)]}], "ll": [4]}
        for number in range(2):
            driver = TABLE.open(context, pa.schema(fields))
            writer = driver.writers("a" * 32)
            writer.write(pa.Table.from_pylist([values], pa.schema(fields)))
            expected = {"app": number - 1 if number else None}
            driver.commit(writer.close(), Transaction({"app": number}, expected), 0)
            driver.close(0.0)
        assert TABLE.changes(context, pa.schema(fields)) == []
        assert TABLE.read(context).to_pylist() == [values, values]
        for path in data_files(context):
            assert parquet.read_schema(path).field("id").type == pa.int32()

    @pytest.mark.parametrize(
        ("field", "reason"),
        [
            (("id", pa.string()), "'id' is long in the table, but string"),
            (("ID", pa.int64()), "upper and lower case"),
            (("x", pa.int64()), "'id' is not in the rows"),
        ],
    )
    def test_other_changes_are_refused(self, context, field, reason):
        self.open(context, [("id", pa.int64())]).close(0.0)
        with pytest.raises(TableMismatchError, match=reason):
            self.open(context, [field])

    def test_a_column_that_may_not_be_null_and_is_not_in_the_rows_is_refused(self, context):
        self.open(context, [("id", pa.int64())]).close(0.0)
        with loaded(context).update_schema(allow_incompatible_changes=True) as update:
            update.add_column("owner", StringType(), required=True)
        with pytest.raises(TableMismatchError, match="'owner' may not be null"):
            self.open(context, [("id", pa.int64())])

    @pytest.mark.parametrize("is_added", [False, True])
    def test_a_column_that_another_engine_drops_beside_a_driver_is_refused(self, lab, is_added):
        driver = lab.open()
        commit(driver, 0, row(1))
        with loaded(lab.context).update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("name")
        if is_added:
            with loaded(lab.context).update_schema() as update:
                update.add_column("name", StringType())
        with pytest.raises(TableMismatchError, match="dropped or renamed column 'name'"):
            commit(driver, 1, row(2))
        assert commit(lab.open(), 1, row(2, "b")).is_new
        shown = {values["id"]: values["name"] for values in lab.read()}
        assert shown == {1: None, 2: "b"}

    def test_a_column_that_may_not_be_null_any_more_is_refused_beside_a_driver(self, lab):
        driver = lab.open()
        commit(driver, 0, row(1))
        with loaded(lab.context).update_schema(allow_incompatible_changes=True) as update:
            update.update_column("name", required=True)
        with pytest.raises(TableMismatchError, match="'name' is string not null in the table"):
            commit(driver, 1, row(2, None))

    def test_a_column_that_others_add_beside_a_driver_is_null_in_its_rows(self, lab, context):
        driver = lab.open()
        commit(driver, 0, row(1))
        wider = pa.schema([*schema(), ("more", pa.string())])
        TABLE.open(replace(context, pipeline="q"), wider).close(0.0)
        assert commit(driver, 1, row(2)).is_new
        assert [values["more"] for values in lab.read()] == [None, None]

    def test_a_time_of_day_of_another_engine_is_null_in_the_rows(self, lab):
        commit(lab.open(), 0, row(1))
        with loaded(lab.context).update_schema() as update:
            update.add_column("opened", TimeType())
        driver = lab.open()
        commit(driver, 1, row(2)), commit(driver, 2, row(3))
        assert TABLE.merge_small_files(lab.context).merged == 3
        assert {values["opened"] for values in lab.read()} == {None}
        with pytest.raises(TableMismatchError, match=r"'opened' is time64\[us\] in the table"):
            self.open(lab.context, [*schema(), ("opened", pa.string())])

    def test_another_partitioning_is_refused(self, context):
        replace(TABLE, partition_by=["day", "name"]).open(context, schema()).close(0.0)
        with pytest.raises(
            TableMismatchError, match=r"by \['day', 'name'\], the decl.* \['hour'\]"
        ):
            replace(TABLE, partition_by=["hour"]).open(context, schema())

    def test_a_column_that_was_renamed_keeps_its_values_where_files_are_merged(self, lab):
        driver = lab.open()
        commit(driver, 0, row(1, "a")), commit(driver, 1, row(2, "b"))
        with loaded(lab.context).update_schema() as update:
            update.rename_column("name", "title")
        merged = TABLE.merge_small_files(lab.context)
        assert (merged.merged, merged.written) == (2, 1)
        assert sorted(TABLE.read(lab.context)["title"].to_pylist()) == ["a", "b"]


class TestApply:
    def test_the_table_is_made_and_grows_before_a_pipeline_starts(self, lab):
        def applied(columns):
            planned = TABLE.changes(lab.context, columns)
            assert TABLE.apply(lab.context, columns) == planned
            assert TABLE.apply(lab.context, columns) == TABLE.changes(lab.context, columns) == []
            return planned

        assert TABLE.is_provisioned
        assert loaded(lab.context) is None
        assert applied(schema()) == ["is created"]
        assert applied(schema().append(pa.field("x", pa.float64()))) == ["gets column 'x', double"]
        # Nothing was written with the new column: the code of before may start.
        commit(lab.open(), 0, row(1))
        assert lab.ids() == [1]

    def test_the_start_makes_what_apply_makes(self, context):
        TABLE.apply(context, schema())
        other = replace(context, lake=f"{context.lake} of a start")
        for started in (context, other):
            TABLE.open(started, schema()).close(0.0)
        applied, opened = loaded(context), loaded(other)
        assert applied.schema() == opened.schema()
        assert applied.spec() == opened.spec()
        assert applied.properties == opened.properties

    def test_a_table_that_would_have_to_change_otherwise_is_refused(self, lab):
        TABLE.apply(lab.context, schema())
        with pytest.raises(TableMismatchError, match="'id' is long in the table, but string"):
            TABLE.apply(lab.context, schema().set(0, pa.field("id", pa.string())))

    def test_a_namespace_that_another_start_creates_meanwhile_is_used(self, context, monkeypatch):
        look = SqlCatalog.namespace_exists

        def late(catalog, namespace):
            monkeypatch.setattr(SqlCatalog, "namespace_exists", look)
            exists = look(catalog, namespace)
            assert TABLE_BESIDE.apply(context, schema()) == ["is created"]
            return exists

        monkeypatch.setattr(SqlCatalog, "namespace_exists", late)
        assert TABLE.apply(context, schema()) == ["is created"]
        assert TABLE.changes(context, schema()) == TABLE_BESIDE.changes(context, schema()) == []

    @pytest.mark.parametrize("has_landed", [True, False])
    def test_what_was_changed_is_known_although_the_answer_was_lost(
        self, context, monkeypatch, has_landed
    ):
        commit_table, lost = SqlCatalog.commit_table, []

        def losing(catalog, *arguments):
            if lost or has_landed:
                answer = commit_table(catalog, *arguments)
            if lost:
                return answer
            lost.append(arguments)
            raise ServerError("503")

        monkeypatch.setattr(SqlCatalog, "commit_table", losing)
        wide = schema().append(pa.field("more", pa.string()))
        for columns, change in (
            (schema(), "is created"),
            (wide, "gets column 'more', string"),
        ):
            lost.clear()
            assert TABLE.apply(context, columns) == [change]
            assert TABLE.apply(context, columns) == []

    def test_what_another_has_changed_is_no_change(self, context, monkeypatch):
        TABLE.apply(context, schema())
        wide = schema().append(pa.field("more", pa.string()))
        commit_table = SqlCatalog.commit_table

        def late(catalog, *arguments):
            monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
            assert TABLE.apply(context, wide) == ["gets column 'more', string"]
            return commit_table(catalog, *arguments)

        monkeypatch.setattr(SqlCatalog, "commit_table", late)
        assert TABLE.apply(context, wide) == []

    @pytest.mark.parametrize(
        "kind",
        [
            *(pa.uint8(), pa.uint16(), pa.float16(), pa.date64(), pa.null(), pa.decimal256(40, 2)),
            *(pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.timestamp("us", "Europe/Berlin")),
            *(pa.time64("us"), pa.duration("us"), pa.decimal128(2, 4), pa.decimal128(5, -2)),
            *(pa.list_view(pa.int32()), pa.dictionary(pa.int8(), pa.uint8())),
        ],
        ids=str,
    )
    def test_a_type_that_no_table_fits_afterwards_is_refused_by_name(self, context, kind):
        for column, name in (
            (pa.field("odd", kind), "odd"),
            (pa.field("odd", pa.map_(pa.string(), pa.struct([("part", kind)]))), "odd.value.part"),
        ):
            columns = schema().append(column)
            for act in (TABLE.changes, TABLE.apply, TABLE.open):
                with pytest.raises(TableMismatchError, match=rf"column '{name}' is .*: cast it"):
                    act(context, columns)
        assert loaded(context) is None

    @pytest.mark.parametrize(
        "kind",
        [
            *(pa.int8(), pa.uint32(), pa.large_string(), pa.string_view(), pa.binary(4)),
            *(pa.timestamp("ms"), pa.decimal128(38, 0), pa.dictionary(pa.int32(), pa.string())),
            *(pa.list_(pa.int32(), 3), pa.large_list(pa.int16()), pa.map_(pa.int8(), pa.bool_())),
        ],
        ids=str,
    )
    def test_a_type_that_is_made_fits_afterwards(self, context, kind):
        columns = schema().append(pa.field("odd", kind))
        assert TABLE.changes(context, columns) == TABLE.apply(context, columns) == ["is created"]
        assert TABLE.changes(context, columns) == []
        TABLE.open(context, columns).close(0.0)

    def test_the_first_commit_makes_a_delta_table(self, context):
        sink = replace(TABLE, format=Delta())
        assert not sink.is_provisioned
        assert sink.changes(context, schema()) == []
        assert not sink.apply(context, schema())
        assert not Path(context.lake).exists()


class TestPartitions:
    ROWS = (row(1, "a"), row(70, "a/b c%"), row(2, None), row(3, ""), row(25 * 60, "a"))

    def test_rows_are_those_of_a_delta_table(self, tmp_path, context):
        declared = replace(HOURLY, unsafe_values=UnsafeValues.RESCUE)
        tables = {}
        for sink in (declared, replace(declared, format=Delta(), table="delta")):
            driver = sink.open(context, schema())
            driver.commit(written(driver, *self.ROWS), batch(0), 0)
            driver.close(0.0)
            shown = sink.read(context, ["id", "name", "at", "_rescued"])
            tables[sink.table] = sorted(map(str, shown.to_pylist()))
        assert tables["clicks"] == tables["delta"]
        parts = declared.snapshot(context).batches(["name"])
        assert {name for part in parts for name in part["name"].to_pylist()} == {
            "a",
            "a/b c%",
            None,
        }

    def test_files_are_found_by_time_and_value(self, context):
        driver = HOURLY.open(context, schema())
        driver.commit(written(driver, row(1), row(70), row(25 * 60)), batch(0), 0)
        driver.close(0.0)
        table = loaded(context)
        assert {str(field.transform) for field in table.spec().fields} == {"hour", "identity"}
        later = GreaterThanOrEqual("at", (NOON + timedelta(hours=1)).isoformat())
        scan = table.scan(row_filter=later)
        assert len(list(scan.plan_files())) == 2
        assert sorted(scan.to_arrow()["id"].to_pylist()) == [70, 25 * 60]
        assert len(list(table.scan(row_filter="name = 'b'").plan_files())) == 0

    def test_other_readers_of_parquet_see_whole_rows(self, context):
        driver = HOURLY.open(context, schema())
        rows = [row(1), row(70), row(25 * 60)]
        driver.commit(written(driver, *rows), batch(0), 0)
        driver.close(0.0)
        paths = [
            str(local_path(task.file.file_path)) for task in loaded(context).scan().plan_files()
        ]
        with duckdb.connect() as connection:
            query = "SELECT id, name FROM read_parquet($1, hive_partitioning = false) ORDER BY id"
            shown = connection.execute(query, [paths]).fetchall()
        assert shown == [(values["id"], values["name"]) for values in rows]

    def test_times_before_1970_and_beyond_calendars_have_partitions(self, context):
        sink = replace(TABLE, partition_by=["day"])
        driver = sink.open(context, schema())
        writer = driver.writers("a" * 32)
        times = pa.array([-1, 2**62 // 10, None], pa.timestamp("us", "UTC"))
        columns = [pa.array([1, 2, 3]), pa.array(["a"] * 3), times]
        writer.write(pa.table(columns, schema=schema()))
        driver.commit(writer.close(), batch(0), 0)
        driver.close(0.0)
        days = {task.file.partition[0] for task in loaded(context).scan().plan_files()}
        assert days == {-1, None}
        assert len(loaded(context).scan(selected_fields=("id",)).to_arrow()) == 3
        shown = loaded(context).scan(row_filter="at < '1970-01-01T00:00:00+00:00'").to_arrow()
        assert shown["id"].to_pylist() == [1]


class TestUpkeep:
    def test_small_files_are_merged_by_partition_beside_a_writer(self, context):
        driver = HOURLY.open(context, schema())
        for number in range(4):
            commit(driver, number, row(number), row(60 + number), row(number, "b"))
        done = HOURLY.merge_small_files(context)
        assert (done.merged, done.written) == (12, 3)
        assert commit(driver, 4, row(9)).is_new
        driver.close(0.0)
        table = loaded(context)
        assert len(table.inspect.files()) == 4
        assert len(HOURLY.read(context)) == 13
        assert TABLE.position_store(context).restored(WRITER) is None

    def test_a_crowded_partition_is_merged_by_the_pipeline(self, context):
        sink = replace(HOURLY, compact_files=3)
        driver = sink.open(context, schema())
        for number in range(3):
            commit(driver, number, row(number))
        driver.close(60.0)
        assert driver.figures()["files_merged"] == 3
        assert driver.figures()["maintenance_failures"] == 0
        assert len(loaded(context).inspect.files()) == 1

    def test_a_file_with_deletes_of_another_engine_is_left_alone(self, lab):
        driver = lab.open()
        for number in range(3):
            commit(driver, number, row(number), row(100 + number))
        loaded(lab.context).delete("id = 100")
        TABLE.merge_small_files(lab.context)
        assert lab.ids() == [0, 1, 2, 101, 102]

    def test_old_snapshots_expire_as_the_table_says(self, lab):
        driver = lab.open()
        for number in range(4):
            commit(driver, number, row(number))
        kept = {"history.expire.max-snapshot-age-ms": "1"}
        with loaded(lab.context).transaction() as transaction:
            transaction.set_properties(kept | {"history.expire.min-snapshots-to-keep": "2"})
        upkeep_of(place(lab.context), TABLE.layout, "at").shorten_log(50)
        assert len(loaded(lab.context).metadata.snapshots) == 2
        assert commit(driver, 4, row(4)).is_new
        assert lab.ids() == [0, 1, 2, 3, 4]

    def test_snapshots_that_tell_of_a_rollback_stay_until_the_pipeline_was_started(self, lab):
        driver = lab.open()
        for number in range(4):
            commit(driver, number, row(number))
        table = loaded(lab.context)
        target = table.metadata.snapshots[1].snapshot_id
        table.manage_snapshots().rollback_to_snapshot(target).commit()
        kept = {"history.expire.max-snapshot-age-ms": "1"}
        with loaded(lab.context).transaction() as transaction:
            transaction.set_properties(kept | {"history.expire.min-snapshots-to-keep": "1"})
        other = TABLE.open(replace(lab.context, pipeline="q"), schema())
        for number in range(3):
            other.commit([], Transaction({"b": number}, {"b": number - 1 if number else None}), 0)
        upkeep = upkeep_of(place(lab.context), TABLE.layout, "at")
        upkeep.shorten_log(50)
        restored = TABLE.position_store(lab.context).restored(WRITER)
        assert restored.to.versions(["app"]) == {"app": 1}
        commit(lab.open(), 4, row(9))
        upkeep.shorten_log(100)
        assert len(loaded(lab.context).metadata.snapshots) == 1
        other.close(0.0)

    def test_a_class_that_got_a_column_of_bytes_is_merged_with_files_before(self, context):
        commit(TABLE.open(context, schema()), 0, row(1))
        columns = pa.schema([*schema(), ("blob", pa.binary()), ("word", pa.string())])
        driver = TABLE.open(context, columns)
        writer = driver.writers("a" * 32)
        writer.write(pa.Table.from_pylist([{**row(2), "blob": b"b", "word": "w"}], columns))
        driver.commit(writer.close(), Transaction({"app": 1}, {"app": 0}), 0)
        assert TABLE.merge_small_files(context).merged == 2
        shown = {values["id"]: values["blob"] for values in TABLE.read(context).to_pylist()}
        assert shown == {1: None, 2: b"b"}

    def test_statistics_of_other_engines_are_no_orphans(self, lab):
        driver = lab.open()
        commit(driver, 0, row(1)), commit(driver, 1, row(2))
        path = Path(local_path(loaded(lab.context).location())) / "metadata" / "p.parquet"
        path.write_bytes(b"statistics")
        table = loaded(lab.context)
        statistics = PartitionStatisticsFile(
            snapshot_id=table.current_snapshot().snapshot_id,
            statistics_path=f"file://{path}",
            file_size_in_bytes=10,
        )
        update = SetPartitionStatisticsUpdate(partition_statistics=statistics)
        table.catalog.commit_table(table, (), (update,))
        old = time.time() - timedelta(days=8).total_seconds()
        for file in Path(lab.context.lake).rglob("*"):
            os.utime(file, (old, old))
        assert TABLE.remove_dead_files(lab.context).vacuumed == 0
        assert path.exists()

    def test_orphans_are_removed_after_the_retention(self, lab):
        driver = lab.open()
        commit(driver, 0, row(1)), commit(driver, 1, row(2))
        written(driver, row(3))
        assert TABLE.remove_dead_files(lab.context).vacuumed == 0
        old = time.time() - timedelta(days=8).total_seconds()
        for path in Path(lab.context.lake).rglob("*"):
            os.utime(path, (old, old))
        assert TABLE.remove_dead_files(lab.context).vacuumed == 1
        assert orphans(lab.context) == 0
        assert lab.ids() == [1, 2]
        commit(driver, 2, row(4))
        assert lab.ids() == [1, 2, 4]

    def test_a_file_that_another_engine_names_otherwise_is_no_orphan(self, lab):
        driver = lab.open()
        commit(driver, 0, row(1))
        [task] = loaded(lab.context).scan().plan_files()
        copy = Path(f"{local_path(task.file.file_path)}.copy.parquet")
        copy.write_bytes(local_path(task.file.file_path).read_bytes())
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"file:{copy}",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=1,
            file_size_in_bytes=copy.stat().st_size,
        )
        with loaded(lab.context).transaction() as transaction:
            transaction.update_snapshot().fast_append().append_data_file(file).commit()
        old = time.time() - timedelta(days=8).total_seconds()
        for path in Path(lab.context.lake).rglob("*"):
            os.utime(path, (old, old))
        TABLE.remove_dead_files(lab.context)
        assert copy.exists()
        assert lab.ids() == [1, 1]

    def test_a_partitioning_that_changed_and_nothing_else_is_refused(self, context):
        driver = replace(TABLE, partition_by=["day"]).open(context, schema())
        commit(driver, 0, row(1))
        with loaded(context).update_spec() as update:
            update.remove_field("day")
            update.add_field("at", HourTransform(), "hour")
        with pytest.raises(TableMismatchError, match=r"by \['hour'\]"):
            commit(driver, 1, row(2))

    def test_a_partition_column_that_another_engine_has_renamed_is_refused(self, context):
        sink = replace(TABLE, partition_by=["name"])
        driver = sink.open(context, schema())
        commit(driver, 0, row(1)), commit(driver, 1, row(2))
        with loaded(context).update_schema() as update:
            update.rename_column("name", "title")
        with pytest.raises(TableMismatchError, match="'title'"):
            commit(driver, 2, row(3))
        with pytest.raises(TableMismatchError, match="'title'"):
            sink.merge_small_files(context)

    def test_nothing_is_written_where_another_engine_has_changed_the_partitioning(self, lab):
        driver = lab.open()
        commit(driver, 0, row(1)), commit(driver, 1, row(2))
        with loaded(lab.context).update_spec() as update:
            update.add_identity("name")
        written(driver, row(3))
        loaded(lab.context).delete("id = 1")
        with pytest.raises(TableMismatchError, match="is partitioned by"):
            commit(driver, 2, row(3))
        with pytest.raises(TableMismatchError, match="is partitioned by"):
            TABLE.merge_small_files(lab.context)
        assert lab.ids() == [2]


class TestDeclaration:
    ROWS = DeclaredRows(COLUMNS, "at")

    @pytest.mark.parametrize(
        ("sink", "message"),
        [
            (replace(TABLE, format="iceberg"), "Lake.format is 'iceberg'"),
            (replace(TABLE, format=Iceberg), "Lake.format is <class"),
            (replace(TABLE, format=Iceberg("")), "Iceberg.namespace is ''"),
            (replace(TABLE, format=Iceberg("a..b")), "Iceberg.namespace is 'a..b'"),
            (replace(TABLE, format=Iceberg("a.")), "Iceberg.namespace is 'a.'"),
        ],
    )
    def test_what_is_wrong_is_said(self, sink, message):
        assert message in " ".join(str(fault) for fault in sink.faults(self.ROWS))

    def test_a_table_of_one_name_may_be_in_two_namespaces(self):
        ads, sales = (replace(TABLE, format=Iceberg(name)) for name in ("ads", "sales"))
        assert [sink.target for sink in (TABLE, ads, sales)] == [
            "clicks",
            "ads.clicks",
            "sales.clicks",
        ]
        assert list(replace(TABLE, table="ads.clicks").faults_beside(ads))

    def test_what_is_no_format_raises_nowhere_else(self):
        sink = replace(TABLE, format=Iceberg)
        assert (sink.extra_for({}), sink.layout.partition_by) == ("", ())
        assert not list(sink.settings_faults({}))

    def test_a_table_has_one_format(self):
        assert list(TABLE.faults_beside(replace(TABLE, format=Delta())))
        assert not list(TABLE.faults_beside(TABLE))

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"catalog": "nessie"}, "'nessie'"),
            ({"catalog": "rest"}, "needs the setting 'uri'"),
            ({"catalog": "rest", "uri": "u", "warehous": "w"}, "the key 'warehous'"),
            ({"credential": "c"}, "which catalog 'sql' does not take"),
        ],
    )
    def test_a_catalog_that_can_not_be_is_said(self, settings, message):
        secrets = {name: Secret(text) for name, text in settings.items()}
        assert message in " ".join(map(str, TABLE.settings_faults(secrets)))

    def test_levels_of_a_namespace_are_for_a_rest_catalog(self):
        sink = replace(TABLE, format=Iceberg("ads.eu"))
        kinds = {kind: {"catalog": Secret(kind), "uri": Secret("u")} for kind in CATALOGS}
        refused = {kind: str(*sink.settings_faults(kinds[kind])) for kind in CATALOGS}
        assert not refused.pop("rest")
        assert str(*sink.settings_faults({})) == refused["sql"]
        for kind, fault in refused.items():
            assert f"namespace 'ads.eu' has levels, and catalog '{kind}' takes one" in fault

    @pytest.mark.parametrize("module", ["io", "catalog.sql", "catalog.rest"])
    def test_every_key_that_pyiceberg_takes_is_known(self, module):
        values = vars(import_module(f"pyiceberg.{module}")).values()
        keys = {text for text in values if isinstance(text, str) and "/" not in text}
        assert {key for key in keys if key.startswith(("s3.", "client.", "rest."))} <= (
            known_settings("rest")
        )

    @pytest.mark.parametrize("kind", CATALOGS)
    def test_a_catalog_takes_its_keys(self, kind):
        settings = dict.fromkeys(known_settings(kind), Secret("x")) | {"catalog": Secret(kind)}
        headers = {"header.X-Tenant": Secret("x")}
        assert not list(TABLE.settings_faults(settings))
        assert len(list(TABLE.settings_faults(settings | headers))) == (kind != "rest")

    def test_iceberg_needs_its_extra_and_delta_does_not(self):
        assert (TABLE.extra_for({}), Lake("clicks").extra_for({})) == ("iceberg", "")

    def test_a_lake_that_is_no_folder_needs_a_catalog(self):
        with pytest.raises(SinkError, match="there is no catalog"):
            TABLE.position_store(SinkContext("p", "s3://bucket", {}))

    @pytest.mark.parametrize("name", ["a?b", "a#b", "x%20y"])
    def test_a_folder_that_no_uri_can_name_is_refused(self, tmp_path, name):
        with pytest.raises(SinkError, match="rename the folder"):
            TABLE.position_store(SinkContext("p", str(tmp_path / name), {}))
        assert not list(tmp_path.iterdir())

    def test_a_catalog_that_takes_requests_and_never_answers_is_waited_for(self, monkeypatch):
        monkeypatch.setattr(RestCatalog, "timeout_seconds", 0.1)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
            context = SinkContext(
                "p", "unused", {}, {"catalog": Secret("rest"), "uri": Secret(uri)}
            )
            with pytest.raises(SinkUnavailableError, match="timed out"):
                TABLE.position_store(context).versions(["app"])

    @pytest.mark.parametrize(
        ("status", "body", "length"),
        [
            ("404 Not Found", b"<html>default backend - 404</html>", None),
            ("404 Not Found", b"", None),
            ("404 Not Found", b'{"message": "no Route matched"}', None),
            ("200 OK", b"<html>maintenance</html>", None),
            ("200 OK", b'{"metadata', 1000),
        ],
    )
    def test_what_a_proxy_answers_says_nothing_of_the_table(self, answering, status, body, length):
        context = answering(status, body, length)
        with pytest.raises(SinkUnavailableError, match="does not answer"):
            TABLE.position_store(context).versions(["app"])
        with pytest.raises(SinkUnavailableError, match="does not answer"):
            TABLE.position_store(context).restored(WRITER)

    def test_a_catalog_says_that_there_is_no_table(self, answering):
        error = {"message": "none", "type": "NoSuchTableException", "code": 404}
        context = answering("404 Not Found", json.dumps({"error": error}).encode(), None)
        assert TABLE.position_store(context).versions(["app"]) == {}

    @pytest.fixture
    def answering(self):
        """Makes the context of a REST catalog that answers each request for a table alike."""
        servers = []

        def start(status, body, length):
            class Handler(http.server.BaseHTTPRequestHandler):
                def do_GET(self):
                    is_config = "/config" in self.path
                    answer = b'{"defaults": {}, "overrides": {}}' if is_config else body
                    code, _, reason = ("200 OK" if is_config else status).partition(" ")
                    self.send_response(int(code), reason)
                    shown = len(answer) if is_config or length is None else length
                    self.send_header("Content-Length", str(shown))
                    self.end_headers()
                    self.wfile.write(answer)

                def log_message(self, *args):
                    pass

            servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
            threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
            uri = f"http://127.0.0.1:{servers[-1].server_port}"
            return SinkContext("p", "unused", {}, {"catalog": Secret("rest"), "uri": Secret(uri)})

        yield start
        for server in servers:
            server.shutdown()
            server.server_close()

    def test_a_catalog_that_is_not_there_is_waited_for(self):
        secrets = {"catalog": Secret("rest"), "uri": Secret("http://127.0.0.1:9")}
        context = SinkContext("p", "unused", {}, secrets)
        with pytest.raises(SinkUnavailableError, match="does not answer"):
            TABLE.position_store(context).versions(["app"])
