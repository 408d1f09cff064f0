import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyarrow import parquet
from tests.contracts.sink import add as commit

from headrace import Lake, UnsafeValues
from headrace.errors import SinkError, TableMismatchError
from headrace.sinks.api import SinkContext, Transaction
from headrace.sinks.lake.delta.log_tail import LogTail
from headrace.sinks.lake.delta.table import LakeTable, read_table
from headrace.sinks.lake.files.data_file import WriteSpec
from headrace.sinks.lake.upkeep import compaction
from headrace.sinks.lake.upkeep.compaction import Compaction, CompactionResult
from headrace.sinks.lake.upkeep.merging import FileMerger
from headrace.sinks.lake.writer import PartitionedWriter

AT = datetime(2019, 11, 24, 7, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "impressions")


def spec(root, columns, *partition_by, **declared):
    fields = pa.schema({"at": TIME, **columns})
    return WriteSpec(root, fields, Lake("impressions", partition_by, **declared).layout, "at")


def written(spec, *rows):
    writer = PartitionedWriter(spec, "t")
    writer.write(pa.Table.from_pylist([{"at": AT, **row} for row in rows], spec.schema))
    return writer.finish()


def add(spec, number, *rows):
    return commit(LakeTable(spec), written(spec, *rows), version=number)


def test_a_new_column_is_added_and_older_rows_read_as_null(root):
    add(spec(root, {"id": pa.int64()}), 0, {"id": 1})
    add(spec(root, {"id": pa.int64(), "country": pa.string()}), 1, {"id": 2, "country": "PL"})
    found = read_table(root, ["id", "country"]).sort_by("id").to_pylist()
    assert found == [{"id": 1, "country": None}, {"id": 2, "country": "PL"}]


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.float16(), pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("us", "Europe/Berlin")),
        *(pa.time64("us"), pa.decimal128(2, 4), pa.list_(pa.timestamp("ns", "UTC"))),
    ],
    ids=str,
)
def test_a_type_that_no_table_has_is_refused_by_name(root, kind):
    columns = pa.schema({"at": TIME, "odd": kind})
    context = SinkContext("p", str(Path(root).parent), {}, event_time="at")
    for act in (Lake("impressions").changes, Lake("impressions").open):
        with pytest.raises(TableMismatchError, match=r"column 'odd' is .*: cast it"):
            act(context, columns)
    assert not Path(root).exists()


def test_a_column_may_have_the_name_of_a_type(root):
    add(spec(root, {"timestamp_ns": pa.struct([("timestamp_nanos", pa.int64())])}), 0)


def test_a_column_that_is_no_longer_written_reads_as_null(root):
    add(spec(root, {"id": pa.int64(), "country": pa.string()}), 0, {"id": 1, "country": "PL"})
    add(spec(root, {"id": pa.int64()}), 1, {"id": 2})
    assert read_table(root).sort_by("id")["country"].to_pylist() == ["PL", None]


def test_compaction_merges_files_of_before_and_after_a_new_column(root):
    add(spec(root, {"id": pa.int64()}), 0, {"id": 1})
    later = spec(root, {"id": pa.int64(), "country": pa.string()})
    add(later, 1, {"id": 2, "country": "PL"})
    before = read_table(root).sort_by("id")
    assert LakeTable(later).compact() == CompactionResult(merged=2, written=1)
    assert read_table(root).sort_by("id") == before


SMALL = pa.struct({"id": pa.int64()})
GROWN = pa.struct({"id": pa.int64(), "site": pa.string()})
BY_DAY = pa.map_(pa.string(), SMALL)
NESTED_BEFORE = {"click": SMALL, "items": pa.list_(SMALL), "by_day": BY_DAY}
NESTED_AFTER = {"click": GROWN, "items": pa.list_(GROWN), "by_day": BY_DAY}
OLD_ROW = {"click": {"id": 1}, "items": [{"id": 2}, None], "by_day": [("a", {"id": 3})]}
NEW_ROW = {
    "click": {"id": 4, "site": "x"},
    "items": [{"id": 5, "site": None}],
    "by_day": [("b", {"id": 6})],
}


def nested_rows(root):
    return sorted(
        read_table(root, list(NESTED_AFTER)).to_pylist(), key=lambda row: row["click"]["id"]
    )


def test_a_field_is_added_to_structs_in_structs_and_lists(root):
    add(spec(root, NESTED_BEFORE), 0, OLD_ROW)
    add(spec(root, NESTED_AFTER), 1, NEW_ROW)
    before = {
        "click": {"id": 1, "site": None},
        "items": [{"id": 2, "site": None}, None],
        "by_day": [("a", {"id": 3})],
    }
    assert nested_rows(root) == [before, NEW_ROW]
    assert LakeTable(spec(root, NESTED_AFTER)).compact() == CompactionResult(merged=2, written=1)
    assert nested_rows(root) == [before, NEW_ROW]


def test_a_field_of_a_struct_that_is_no_longer_written_reads_as_null(root):
    add(spec(root, NESTED_AFTER), 0, NEW_ROW)
    add(spec(root, NESTED_BEFORE), 1, OLD_ROW)
    assert [row["click"] for row in nested_rows(root)] == [
        {"id": 1, "site": None},
        {"id": 4, "site": "x"},
    ]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (SMALL, pa.struct({"id": pa.string()}), "'x.id' is long in the table, but string in"),
        (SMALL, pa.struct({"ID": pa.int64()}), "'x.ID' of the rows is 'id' in the table"),
        (SMALL, pa.list_(SMALL), "is struct<id: long> in the table, but array<struct<id: long>>"),
        (pa.list_(pa.int64()), pa.list_(pa.float64()), "'x[]' is long in the table, but double"),
        (
            pa.map_(pa.string(), pa.int64()),
            pa.map_(pa.string(), SMALL),
            "'x[]' is long in the table, but struct<id: long>",
        ),
        (pa.decimal128(8, 2), pa.decimal128(9, 2), "decimal(8,2) in the table, but decimal(9,2)"),
        (
            pa.map_(pa.string(), SMALL),
            pa.map_(pa.string(), GROWN),
            "'x[].site' is new: structs inside of maps can't change",
        ),
        (
            pa.map_(pa.string(), pa.list_(GROWN)),
            pa.map_(pa.string(), pa.list_(SMALL)),
            "'x[][].site' is missing: structs inside of maps can't change",
        ),
        (
            pa.list_(pa.field("element", pa.int64(), nullable=False)),
            pa.list_(pa.int64()),
            "'x[]' is long not null in the table, but long in the rows",
        ),
    ],
)
def test_a_nested_type_that_changed_is_refused_by_its_path(root, before, after, words):
    add(spec(root, {"x": before}), 0)
    with pytest.raises(TableMismatchError, match=re.escape(words)):
        LakeTable(spec(root, {"x": after})).check()


def by(pipeline, spec):
    return replace(spec, pipeline=pipeline)


def test_a_column_that_its_pipeline_lacks_now_is_refused_with_the_remedy(root):
    add(by("p", spec(root, NESTED_AFTER)), 0, NEW_ROW)
    with pytest.raises(TableMismatchError, match=r"'click.site' .* pipeline 'p' wrote it before"):
        LakeTable(by("p", spec(root, NESTED_BEFORE))).check()
    LakeTable(by("another", spec(root, NESTED_BEFORE))).check()
    LakeTable(by("p", spec(root, NESTED_AFTER))).check()


def test_a_column_that_another_engine_added_may_be_lacking(root):
    add(by("p", spec(root, {"id": pa.int64()})), 0, {"id": 1})
    add(by("q", spec(root, {"id": pa.int64(), "country": pa.string()})), 1, {"id": 2})
    DeltaTable(root).alter.add_columns([Field("note", "string")])
    LakeTable(by("p", spec(root, {"id": pa.int64()}))).check()


def test_columns_are_recorded_once_they_are_written(root):
    small = by("p", spec(root, {"id": pa.int64()}))
    table = LakeTable(small)
    commit(table, written(small, {"id": 1}), version=0)
    versions = DeltaTable(root).version()
    commit(table, written(small, {"id": 2}), version=1)
    assert DeltaTable(root).version() == versions + 1
    grown = by("p", spec(root, {"id": pa.int64(), "country": pa.string()}))
    assert [change.path for change in LakeTable(grown).changes()] == ["country"]
    LakeTable(small).check()
    add(grown, 2, {"id": 3})
    with pytest.raises(TableMismatchError, match="'country' is not in the rows"):
        LakeTable(small).check()


def test_two_pipelines_that_add_the_same_column_both_succeed(root):
    add(spec(root, {"id": pa.int64()}), 0, {"id": 1})
    later = spec(root, {"id": pa.int64(), "country": pa.string()})
    tables = [LakeTable(later), LakeTable(later)]
    for app_id, table in zip("bc", tables, strict=True):
        table.versions([app_id])
    for app_id, table in zip("bc", tables, strict=True):
        assert commit(table, written(later, {"id": 2}), app_id)
    assert read_table(root).num_rows == 3


def test_a_changed_type_is_refused_with_the_remedy(root):
    add(spec(root, {"id": pa.int64()}), 0, {"id": 1})
    with pytest.raises(
        TableMismatchError, match=r"'id' is long in the table, but string .*another `table`"
    ):
        add(spec(root, {"id": pa.string()}), 1, {"id": "x"})


def test_another_partitioning_is_refused_with_the_remedy(root):
    add(spec(root, {"id": pa.int64()}, "day"), 0, {"id": 1})
    with pytest.raises(
        TableMismatchError, match=r"\['day'\], the declaration by \['hour'\].*another"
    ):
        add(spec(root, {"id": pa.int64()}, "hour"), 1, {"id": 1})


@pytest.mark.parametrize(
    ("columns", "partition_by", "reason"),
    [
        ({"day": pa.string()}, "day", "a column 'day' beside partition 'day': rename it"),
        ({"Day": pa.string()}, "day", "a column 'Day' beside partition 'day': rename it"),
        ({"Id": pa.int64(), "id": pa.int64()}, "day", "a column 'id' beside column 'Id'"),
        ({"id": pa.int64()}, "campaign", "'campaign' is not in the rows"),
        ({"price": pa.float64()}, "price", "can't partition by 'price', a double"),
    ],
)
def test_declarations_that_do_not_fit_the_rows_are_refused(root, columns, partition_by, reason):
    with pytest.raises(TableMismatchError, match=reason):
        LakeTable(spec(root, columns, partition_by))


def test_a_column_named_as_that_of_unsafe_values_is_refused_in_any_case(root):
    columns = {"c": pa.string(), "_RESCUED": pa.string()}
    with pytest.raises(TableMismatchError, match="'_RESCUED' beside column '_rescued'"):
        LakeTable(spec(root, columns, "c", unsafe_values=UnsafeValues.RESCUE))


def test_time_partitions_need_an_event_time(root):
    with pytest.raises(TableMismatchError, match="declare `event_time`"):
        LakeTable(WriteSpec(root, pa.schema({"id": pa.int64()}), Lake("t", ("day",)).layout))


def test_partition_columns_of_every_type_round_trip(root):
    columns = {"site": pa.int64(), "clicked": pa.bool_(), "c": pa.string()}
    rows = [
        {"site": -5, "clicked": True, "c": "x"},
        {"site": 0, "clicked": False, "c": None},
        {"site": None, "clicked": None, "c": "true"},
    ]
    add(spec(root, columns, "day", "site", "clicked", "c"), 0, *rows)
    found = read_table(root, list(columns)).to_pylist()
    assert sorted(found, key=str) == sorted(rows, key=str)


def test_tables_without_partitions_are_committed_and_compacted(root):
    plain = spec(root, {"id": pa.int64()})
    for batch in range(3):
        add(plain, batch, {"id": batch})
    assert LakeTable(plain).compact() == CompactionResult(merged=3, written=1)
    assert sorted(read_table(root)["id"].to_pylist()) == [0, 1, 2]


def test_metadata_is_in_the_history(root):
    table = LakeTable(spec(root, {"id": pa.int64()}))
    files = written(spec(root, {"id": pa.int64()}), {"id": 1})
    table.commit(files, Transaction({"a": 0}, {}, {"rows": 1}))
    assert DeltaTable(root).history()[0]["headrace"] == {"rows": 1}


def test_readers_prune_files_by_event_time(root):
    plain = spec(root, {"id": pa.int64()})
    add(plain, 0, {"id": 1}, {"id": 2, "at": AT + timedelta(microseconds=1)})
    found = pa.table(DeltaTable(root).get_add_actions(flatten=True)).to_pylist()[0]
    assert (found["min.at"], found["max.at"]) == (AT, AT + timedelta(microseconds=1))
    assert (found["num_records"], found["null_count.at"]) == (2, 0)


def test_polars_reads_the_table(root):
    rescuing = spec(root, {"c": pa.string()}, "day", "c", unsafe_values=UnsafeValues.RESCUE)
    add(rescuing, 0, {"c": "a b"}, {"c": "a/b"})
    found = pl.read_delta(root).sort("c")
    assert found["c"].to_list() == ["__unsafe__", "a b"]
    assert found["_rescued"].to_list() == ['{"c": "a/b"}', None]


def test_a_commit_whose_answer_was_lost_counts_as_done(root, monkeypatch):
    plain = spec(root, {"id": pa.int64()})
    add(plain, 0, {"id": 1})
    append = LogTail.append

    def answer_lost(*args):
        monkeypatch.setattr(LogTail, "append", append)
        append(*args)
        raise CommitFailedError("connection reset")

    monkeypatch.setattr(LogTail, "append", answer_lost)
    assert add(plain, 1, {"id": 2})
    assert sorted(read_table(root)["id"].to_pylist()) == [1, 2]


def test_reading_a_table_that_is_not_there_is_an_error(root):
    with pytest.raises(SinkError, match="there is no Delta table; `headrace run` makes it"):
        read_table(root)


def test_a_log_that_is_damaged_is_an_error(root):
    add(spec(root, {"id": pa.int64()}), 0, {"id": 1})
    Path(root, "_delta_log", "00000000000000000000.json").write_text("{")
    with pytest.raises(SinkError, match="log can't be read"):
        read_table(root)


def test_large_files_are_left_alone(root, monkeypatch):
    plain = spec(root, {"id": pa.int64()})
    for batch in range(3):
        add(plain, batch, {"id": batch})
    monkeypatch.setattr(compaction, "SMALL_BYTES", 1)
    assert Compaction(root).run() == CompactionResult()


def test_rows_of_a_merged_file_are_in_the_order_of_their_files(root):
    plain = spec(root, {"id": pa.int64()})
    ids = [5, 3, 9, 1]
    for batch, number in enumerate(ids):
        add(plain, batch, {"id": number}, {"id": -number})
    assert Compaction(root).run() == CompactionResult(merged=4, written=1)
    assert read_table(root)["id"].to_pylist() == [sign * n for n in ids for sign in (1, -1)]


def test_merged_files_stay_near_their_target(root, monkeypatch):
    plain = spec(root, {"id": pa.int64()})
    for batch in range(6):
        add(plain, batch, {"id": batch})
    sizes = pa.table(DeltaTable(root).get_add_actions())["size_bytes"].to_pylist()
    monkeypatch.setattr(compaction, "TARGET_BYTES", 2 * min(sizes))
    assert Compaction(root).run() == CompactionResult(merged=6, written=3)


def test_of_two_compactions_at_once_one_gives_way(root, monkeypatch):
    plain = spec(root, {"id": pa.int64()})
    for batch in range(3):
        add(plain, batch, {"id": batch})
    merge_all, others = FileMerger.merge_all, [Compaction(root)]

    def before_the_other(merger, groups):
        merges = merge_all(merger, groups)
        if others and not others.pop().run().merged:
            raise AssertionError("the other one had nothing to do")
        return merges

    monkeypatch.setattr(FileMerger, "merge_all", before_the_other)
    assert Compaction(root).run() == CompactionResult()
    assert sorted(read_table(root)["id"].to_pylist()) == [0, 1, 2]


def test_compaction_changes_no_data_for_readers_of_changes(root):
    plain = spec(root, {"id": pa.int64()})
    for batch in range(2):
        add(plain, batch, {"id": batch})
    Compaction(root).run()
    log = Path(root, "_delta_log", "00000000000000000002.json").read_text().splitlines()
    actions = [json.loads(line) for line in log]
    changes = [
        one[kind]["dataChange"] for one in actions for kind in ("add", "remove") if kind in one
    ]
    assert changes == [False, False, False]


def test_replaced_files_stay_for_the_retention(root):
    plain = spec(root, {"id": pa.int64()})
    for batch in range(2):
        add(plain, batch, {"id": batch})
    table = LakeTable(plain)
    assert table.compact(retention=timedelta(days=7)).vacuumed == 0
    assert table.compact(retention=timedelta(0)).vacuumed == 2
    assert table.compact(retention=timedelta(0)).vacuumed == 0


def test_tables_of_a_newer_protocol_are_not_compacted(root):
    write_deltalake(
        root, pa.table({"id": [1]}), configuration={"delta.enableDeletionVectors": "true"}
    )
    with pytest.raises(SinkError, match="compact it there"):
        Compaction(root).run()


def write_nanoseconds(root):
    """Writes the files of a table once more, their times a nanosecond later."""
    for path in Path(root).rglob("part-*.parquet"):
        rows = parquet.ParquetFile(path).read()
        times = pc.add(rows["at"].cast(pa.timestamp("ns", "UTC")).cast(pa.int64()), 1)
        later = times.cast(pa.timestamp("ns", "UTC"))
        parquet.write_table(rows.set_column(rows.column_names.index("at"), "at", later), path)


def test_times_of_other_engines_in_nanoseconds_are_merged_as_microseconds(root):
    plain = spec(root, {"id": pa.int64()})
    for number in range(2):
        add(plain, number, {"id": number})
    write_nanoseconds(root)
    assert Compaction(root).run().merged == 2
    merged = next(Path(root).glob("part-merged-*"))
    assert parquet.read_table(merged)["at"].to_pylist() == [AT, AT]


def test_times_of_other_engines_beyond_2262_are_merged(root):
    plain = spec(root, {"id": pa.int64()})
    late = datetime(9999, 12, 31, tzinfo=UTC)
    files = [file for number in range(2) for file in written(plain, {"id": number, "at": late})]
    for file in files:
        path = Path(root, file.path)
        parquet.write_table(parquet.read_table(path), path, use_deprecated_int96_timestamps=True)
    sized = [replace(file, size=Path(root, file.path).stat().st_size) for file in files]
    commit(LakeTable(plain), sized)
    assert Compaction(root).run().merged == 2
    merged = next(Path(root).glob("part-merged-*"))
    assert parquet.read_table(merged)["at"].to_pylist() == [late, late]
