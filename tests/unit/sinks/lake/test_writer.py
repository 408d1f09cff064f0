import json
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from headrace import Lake
from headrace.errors import SinkError
from headrace.sinks.api import RejectedRow
from headrace.sinks.lake import writer as writer_module
from headrace.sinks.lake.declaration import CODECS
from headrace.sinks.lake.files.data_file import WriteSpec, WrittenFile
from headrace.sinks.lake.files.encoding import ParquetEncoding
from headrace.sinks.lake.files.folder import TableFolder
from headrace.sinks.lake.files.partitions import Partition
from headrace.sinks.lake.upkeep.merging import FileMerger
from headrace.sinks.lake.writer import PartitionedWriter
from headrace.storage.files import list_files

SEVEN = datetime(2019, 11, 24, 7, 30, tzinfo=UTC)
COLUMNS = pa.schema(
    [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("campaign", pa.string())]
)


def spec(root, *partition_by, columns=COLUMNS, **declared):
    return WriteSpec(str(root), columns, Lake("t", partition_by, **declared).layout, "at")


def rows(*campaigns, at=SEVEN):
    return pa.Table.from_pylist(
        [{"id": n, "at": at, "campaign": c} for n, c in enumerate(campaigns)], COLUMNS
    )


def content(root, file):
    return parquet.ParquetFile(root / file.path).read()


def test_partition_columns_are_in_the_path_and_not_in_the_file(tmp_path):
    writer = PartitionedWriter(spec(tmp_path, "day", "hour", "campaign"), "t7")
    writer.write(rows("all"))
    [file] = writer.finish()
    assert file.path.startswith("day=2019-11-24/hour=7/campaign=all/part-t7-")
    assert file.path.endswith(".zstd.parquet")
    assert content(tmp_path, file).column_names == ["id", "at"]


@pytest.mark.parametrize("codec", CODECS)
def test_files_have_the_declared_codec_and_are_read_back(tmp_path, codec):
    """Files of a batch, and what merges make of them."""
    written = rows(*(f"campaign {number}" for number in range(1000)))
    writer = PartitionedWriter(spec(tmp_path, compression=codec), "t")
    writer.write(written)
    [file] = writer.finish()
    merged = FileMerger(TableFolder(str(tmp_path)), codec, COLUMNS, ["at"]).merge(
        Partition(()), [file.path]
    )
    for path in (file.path, merged.path):
        assert path.endswith(f".{codec}.parquet")
        assert codecs_of(tmp_path / path)["campaign"] == codec.upper()
        assert TableFolder(str(tmp_path)).read(path).cast(COLUMNS) == written


def codecs_of(path):
    """The codec of each column, as the footer says."""
    group = parquet.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema: column.compression for column in columns}


def test_a_manifest_tells_rows_size_and_event_times(tmp_path):
    writer = PartitionedWriter(spec(tmp_path, "day"), "t")
    writer.write(rows("a", "b"))
    writer.write(rows("c", at=SEVEN + timedelta(microseconds=1)))
    [file] = writer.finish()
    assert file.rows == 3
    assert file.size == (tmp_path / file.path).stat().st_size
    assert file.max_event_time_us - file.min_event_time_us == 1
    assert json.loads(file.stats) == {
        "numRecords": 3,
        "minValues": {"at": "2019-11-24T07:30:00.000000Z"},
        "maxValues": {"at": "2019-11-24T07:30:00.000001Z"},
        "nullCount": {"at": 0},
    }


def test_manifests_survive_json_and_pickle(tmp_path):
    writer = PartitionedWriter(spec(tmp_path, "campaign"), "t")
    writer.write(rows("żółć", None))
    for file in writer.finish():
        assert WrittenFile.from_json(file.to_json()) == file
        assert pickle.loads(pickle.dumps(file)) == file


def test_a_spec_can_be_pickled(tmp_path):
    original = spec(tmp_path, "day")
    assert pickle.loads(pickle.dumps(original)) == original


def test_rows_keep_their_order_inside_a_partition(tmp_path):
    writer = PartitionedWriter(spec(tmp_path, "campaign"), "t")
    for _ in range(3):
        writer.write(rows(*"abab"))
    for file in writer.finish():
        found = content(tmp_path, file)["id"].to_pylist()
        assert found == [found[0], found[0] + 2] * 3


def test_rows_without_a_home_are_handed_back_with_the_reason(tmp_path):
    writer = PartitionedWriter(spec(tmp_path, "campaign"), "t")
    refused = writer.write(rows("all", "../../x", "all", "x" * 300, "../../x"))
    assert [row.index for row in refused] == [1, 3, 4]
    reason = "campaign holds '/', which separates directories"
    assert refused[0] == RejectedRow(1, "unsafe-partition-value", reason)
    assert [file.rows for file in writer.finish()] == [2]


def test_a_missing_column_is_an_error(tmp_path):
    writer = PartitionedWriter(spec(tmp_path, "campaign"), "t")
    with pytest.raises(SinkError, match=r"lack column\(s\) campaign"):
        writer.write(rows("a").drop_columns("campaign"))


def test_columns_come_in_any_order_and_more_of_them(tmp_path):
    writer = PartitionedWriter(spec(tmp_path, "campaign"), "t")
    given = rows("a").append_column("more", pa.array([1]))
    writer.write(given.select(["more", "campaign", "at", "id"]))
    [file] = writer.finish()
    assert content(tmp_path, file).column_names == ["id", "at"]


def test_no_rows_make_no_files(tmp_path):
    writer = PartitionedWriter(spec(tmp_path, "campaign"), "t")
    assert writer.write(rows()) == []
    assert writer.finish() == []


def test_record_batches_are_taken_like_tables(tmp_path):
    writer = PartitionedWriter(spec(tmp_path), "t")
    for batch in rows("a", "b").to_batches():
        writer.write(batch)
    [file] = writer.finish()
    assert "/" not in file.path
    assert content(tmp_path, file).column_names == ["id", "at", "campaign"]


def test_more_rows_than_the_buffer_holds_make_further_files(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "MAX_BUFFERED_BYTES", 500)
    writer = PartitionedWriter(spec(tmp_path, "campaign"), "t")
    for _ in range(5):
        writer.write(rows(*["a", "b"] * 30))
    written = writer.finish()
    assert len(written) == 10
    assert sum(file.rows for file in written) == 300


def test_an_aborted_task_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "MAX_BUFFERED_BYTES", 1)
    writer = PartitionedWriter(spec(tmp_path, "campaign"), "t")
    writer.write(rows("a", "b"))
    assert len(list_files(str(tmp_path))) == 2
    writer.abort()
    assert list_files(str(tmp_path)) == []


def test_a_file_that_could_not_be_finished_is_removed(tmp_path, monkeypatch):
    def full_disk(self, rows, stream):
        stream.write(b"PAR1")
        raise OSError("no space left")

    monkeypatch.setattr(ParquetEncoding, "write", full_disk)
    writer = PartitionedWriter(spec(tmp_path, "campaign"), "t")
    writer.write(rows("a"))
    with pytest.raises(OSError, match="no space left"):
        writer.finish()
    assert list_files(str(tmp_path)) == []


def test_hour_alone_is_the_hour_of_any_day(tmp_path):
    writer = PartitionedWriter(spec(tmp_path, "hour"), "t")
    writer.write(pa.concat_tables([rows("a"), rows("a", at=SEVEN + timedelta(days=3))]))
    [file] = writer.finish()
    assert file.partition_values == {"hour": "7"}


def test_rows_without_event_time_go_to_the_null_partition(tmp_path):
    writer = PartitionedWriter(spec(tmp_path, "day"), "t")
    writer.write(rows("a", at=None))
    [file] = writer.finish()
    assert file.partition_values == {"day": None}
    assert file.path.startswith("day=__HIVE_DEFAULT_PARTITION__/")
    assert (file.min_event_time_us, file.max_event_time_us) == (None, None)
    assert json.loads(file.stats)["nullCount"] == {"at": 1}


def test_event_times_that_no_calendar_holds_go_to_the_null_partition(tmp_path):
    far = pa.array([253_402_300_800 * 1_000_000], pa.timestamp("us", "UTC"))
    writer = PartitionedWriter(spec(tmp_path, "day"), "t")
    writer.write(rows("a").set_column(1, "at", far))
    [file] = writer.finish()
    assert file.partition_values == {"day": None}
    assert json.loads(file.stats)["maxValues"] == {}
    assert content(tmp_path, file)["at"].cast(pa.int64()).to_pylist() == [253_402_300_800_000_000]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_is_text_however_arrow_holds_it(tmp_path, kind):
    columns = COLUMNS.set(0, pa.field("id", kind))
    given = rows("a", "b").set_column(0, "id", pa.array(["ż" * 20, None], pa.string()).cast(kind))
    writer = PartitionedWriter(spec(tmp_path, "day", columns=columns), "t")
    writer.write(given)
    [file] = writer.finish()
    found = content(tmp_path, file)
    assert found.schema.field("id").type == pa.string()
    assert found["id"].to_pylist() == ["ż" * 20, None]


def test_nested_columns_keep_their_types(tmp_path):
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns = pa.schema(
        [
            ("at", pa.timestamp("us", "UTC")),
            ("campaign", pa.string_view()),
            ("headers", pa.list_(pair)),
            ("tags", pa.map_(pa.string(), pa.int32())),
            ("price", pa.decimal128(10, 2)),
        ]
    )
    record = {
        "at": SEVEN,
        "headers": [{"key": "k", "value": b"v"}],
        "tags": [("a", 1)],
        "price": 5,
    }
    table = pa.Table.from_pylist([{**record, "campaign": c} for c in "ab"], columns)
    writer = PartitionedWriter(spec(tmp_path, "campaign", columns=columns), "t")
    writer.write(table)
    for file in writer.finish():
        [found] = content(tmp_path, file).to_pylist()
        assert found == record


def test_the_event_time_has_statistics_for_other_readers(tmp_path):
    writer = PartitionedWriter(spec(tmp_path, "day"), "t")
    writer.write(rows(*(f"campaign {n}" for n in range(50))))
    [file] = writer.finish()
    group = parquet.ParquetFile(tmp_path / file.path).metadata.row_group(0)
    assert [group.column(index).is_stats_set for index in range(3)] == [False, True, False]
    assert pl.read_parquet(tmp_path / file.path)["campaign"].n_unique() == 50


def test_importing_the_writer_loads_no_arrow_before_spark_forks_its_workers():
    heavy = {"pyarrow", "polars", "pyspark"}
    code = f"import sys, headrace.sinks.lake.writer; print({heavy} & {{*sys.modules}})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert found.stdout.strip() == b"set()"


@pytest.mark.parametrize("name", ["__rows", "__lowest", "__time_key", "*", "^a$"])
def test_a_partition_column_may_have_any_name_that_an_event_class_takes(tmp_path, name):
    writer = PartitionedWriter(
        spec(tmp_path, "day", name, columns=COLUMNS.append(pa.field(name, pa.string()))), "t"
    )
    writer.write(rows("all").append_column(name, pa.array(["a"])))
    [file] = writer.finish()
    assert content(tmp_path, file).to_pylist() == [{"id": 0, "at": SEVEN, "campaign": "all"}]
