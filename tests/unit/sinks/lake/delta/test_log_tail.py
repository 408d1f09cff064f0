"""A writer that adds files knows the end of the log only; delta-rs and other engines write too."""

import json
import shutil
import string
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from deltalake.transaction import AddAction
from tests.unit.sinks.lake.delta.test_table import spec, written

from headrace import Lake
from headrace.errors import SinkError
from headrace.sinks.api import Transaction
from headrace.sinks.lake.delta import log as delta_log
from headrace.sinks.lake.delta import log_tail
from headrace.sinks.lake.delta.log_tail import LogTail
from headrace.sinks.lake.delta.table import LakeTable, read_table
from headrace.sinks.lake.files.data_file import WriteSpec, WrittenFile, delta_stats
from headrace.sinks.lake.upkeep.compaction import Compaction
from headrace.storage import files as storage

IDS = {"id": pa.int64()}


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "impressions")


@pytest.fixture
def reads(monkeypatch):
    """How often a table was read with all its files."""
    seen = []

    class Counted(DeltaTable):
        def __init__(self, *args, **options):
            seen.append("all")
            super().__init__(*args, **options)

        def update_incremental(self):
            seen.append("new")
            super().update_incremental()

    monkeypatch.setattr(delta_log, "DeltaTable", Counted)
    return seen


def add(table, root, number, app_id="a"):
    """Adds a row of that number; it is what follows the last one of the application."""
    return follow(table, root, number, table.versions([app_id]).get(app_id), app_id)


def follow(table, root, number, before, app_id="a"):
    files = written(spec(root, IDS), {"id": number})
    return table.commit(files, Transaction({app_id: number}, {app_id: before}))


def ids(root):
    return sorted(read_table(root)["id"].to_pylist())


def log(root, version):
    path = Path(root, "_delta_log", f"{version:020}.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_files_of_the_table_are_read_once_a_run_and_not_once_a_batch(root, reads):
    add(LakeTable(spec(root, IDS)), root, 0)
    table = LakeTable(spec(root, IDS))
    reads.clear()
    for batch_id in range(1, 11):
        assert follow(table, root, batch_id, batch_id - 1)
    assert reads == ["all"]
    assert ids(root) == list(range(11))


def test_what_other_writers_commit_is_read_on(root, reads):
    one, other = LakeTable(spec(root, IDS)), LakeTable(spec(root, IDS))
    add(one, root, 0, "a")
    add(other, root, 1, "b")
    add(one, root, 2, "a")
    reads.clear()
    add(other, root, 3, "b")
    Compaction(root).run()
    assert other.versions(["b"]) == {"b": 3}
    assert add(one, root, 4, "a")
    assert "all" not in reads[2:]  # those of the compaction come first
    assert ids(root) == [0, 1, 2, 3, 4]


def test_a_batch_that_another_driver_has_committed_is_seen(root):
    one, other = LakeTable(spec(root, IDS)), LakeTable(spec(root, IDS))
    add(one, root, 0)
    assert other.versions(["a"]) == {"a": 0}
    add(one, root, 1)
    assert not follow(other, root, 1, 0)
    assert ids(root) == [0, 1]


def test_a_table_that_was_made_again_is_read_anew(root):
    table = LakeTable(spec(root, IDS))
    for batch_id in range(3):
        add(table, root, batch_id)
    storage.delete(root)
    add(LakeTable(spec(root, IDS)), root, 7, "b")
    assert table.versions(["a"]) == {}
    assert add(table, root, 3)
    assert ids(root) == [3, 7]


def test_a_log_that_was_cleaned_meanwhile_is_read_anew(root):
    idle, busy = LakeTable(spec(root, IDS)), LakeTable(spec(root, IDS))
    add(busy, root, 0)
    assert idle.versions(["a"]) == {"a": 0}
    for batch_id in range(1, 4):
        add(busy, root, batch_id)
    DeltaTable(root).create_checkpoint()
    Path(root, "_delta_log", f"{1:020}.json").unlink()
    assert idle.versions(["a"]) == {"a": 3}
    assert add(idle, root, 4)
    assert ids(root) == [0, 1, 2, 3, 4]


def test_a_checkpoint_of_the_log_is_no_reason_to_read_all_files(root, reads):
    idle, busy = LakeTable(spec(root, IDS)), LakeTable(spec(root, IDS))
    add(busy, root, 0)
    assert idle.versions(["a"]) == {"a": 0}
    for number in range(1, 4):
        add(busy, root, number)
    DeltaTable(root).create_checkpoint()
    reads.clear()
    assert idle.versions(["a"]) == {"a": 3}
    assert reads == []


def test_a_writer_far_behind_reads_the_table_and_not_each_version(root, reads, monkeypatch):
    monkeypatch.setattr(LogTail, "max_behind", 2)
    idle, busy = LakeTable(spec(root, IDS)), LakeTable(spec(root, IDS))
    add(busy, root, 0)
    assert idle.versions(["a"]) == {"a": 0}
    for number in range(1, 5):
        add(busy, root, number)
    DeltaTable(root).create_checkpoint()
    reads.clear()
    assert idle.versions(["a"]) == {"a": 4}
    assert reads == ["all"]


def test_a_commit_that_another_writer_was_faster_with_is_made_again(root, monkeypatch):
    one, other = LakeTable(spec(root, IDS)), LakeTable(spec(root, IDS))
    add(one, root, 0)
    other.versions(["b"])
    append = LogTail.append

    def after_the_other(tail, *args):
        monkeypatch.setattr(LogTail, "append", append)
        add(one, root, 1)
        append(tail, *args)

    monkeypatch.setattr(LogTail, "append", after_the_other)
    assert add(other, root, 2, "b")
    assert ids(root) == [0, 1, 2]
    assert DeltaTable(root).version() == 2


def test_a_commit_whose_answer_was_lost_is_known_by_its_content(root, monkeypatch):
    table = LakeTable(spec(root, IDS))
    add(table, root, 0)
    create = storage.write_bytes_new

    def answer_lost(*args):
        create(*args)
        create(*args)

    monkeypatch.setattr(storage, "write_bytes_new", answer_lost)
    assert add(table, root, 1)
    assert DeltaTable(root).version() == 1
    assert ids(root) == [0, 1]


def test_deletion_vectors_of_another_engine_do_not_stop_a_writer(root, reads):
    table = LakeTable(spec(root, IDS))
    add(table, root, 0)
    DeltaTable(root).alter.add_feature(
        [TableFeatures.DeletionVectors], allow_protocol_versions_increase=True
    )
    reads.clear()
    assert add(table, root, 1)
    assert add(table, root, 2)
    assert reads == ["all"]
    assert ids(root) == [0, 1, 2]


def test_paths_are_written_as_delta_rs_writes_them(root):
    """A file is removed by the very text with which it was added, whoever removes it."""
    values = [*string.printable.replace("/", ""), "ż", "日本", "\x7f", "\xa0"]
    columns = pa.schema({"id": pa.int64(), "c": pa.string()})
    declared = WriteSpec(root, columns, Lake("t", partition_by=("c",)).layout)
    files = [
        WrittenFile(f"c=a{c}b/part-0.parquet", 1, 1, {"c": f"a{c}b"}, delta_stats(1, {}))
        for c in values
    ]
    LakeTable(declared).commit(files[:1], Transaction({"a": 0}, {"a": None}))
    table = LakeTable(declared)
    table.commit(files, Transaction({"a": 1}, {"a": 0}))
    existing = delta_log.DeltaLog(root).existing()
    adds = [
        AddAction(
            file.path, file.size, file.partition_values, 0, data_change=True, stats=file.stats
        )
        for file in files
    ]
    existing.create_write_transaction(adds, "append", existing.schema(), ["c"])
    ours, theirs = (
        [action["add"]["path"] for action in log(root, version) if "add" in action]
        for version in (1, 2)
    )
    assert ours == theirs


def test_a_log_with_a_damaged_end_is_an_error(root):
    table = LakeTable(spec(root, IDS))
    add(table, root, 0)
    table.versions(["a"])
    Path(root, "_delta_log", f"{1:020}.json").write_text("{")
    with pytest.raises(SinkError, match="log can't be read"):
        table.versions(["a"])


@pytest.mark.parametrize("features", [[], [TableFeatures.ChangeDataFeed]])
def test_two_writers_that_expect_the_same_do_not_both_commit(root, monkeypatch, features):
    one, other = LakeTable(spec(root, IDS)), LakeTable(spec(root, IDS))
    add(one, root, 0)
    for feature in features:
        DeltaTable(root).alter.add_feature([feature], allow_protocol_versions_increase=True)
    append = LogTail.append

    def after_the_other(tail, *args):
        monkeypatch.setattr(LogTail, "append", append)
        follow(one, root, 1, 0)
        append(tail, *args)

    monkeypatch.setattr(LogTail, "append", after_the_other)
    assert not follow(other, root, 1, 0)
    assert ids(root) == [0, 1]


def test_a_restore_under_a_writer_stops_it(root):
    table = LakeTable(spec(root, IDS))
    for number in range(3):
        add(table, root, number)
    DeltaTable(root).restore(1)
    with pytest.raises(SinkError, match="RESTORE"):
        follow(table, root, 3, 2)
    assert ids(root) == [0, 1]


def test_a_table_put_back_from_a_backup_and_written_on_is_read_anew(root, tmp_path):
    table = LakeTable(spec(root, IDS))
    for number in range(3):
        add(table, root, number)
    backup = shutil.copytree(root, tmp_path / "backup")
    add(table, root, 3)
    assert table.versions(["a"]) == {"a": 3}
    storage.delete(root)
    shutil.copytree(backup, root)
    other = LakeTable(spec(root, IDS))
    for number in range(10, 13):
        add(other, root, number, "b")
    with pytest.raises(SinkError, match="other positions of its pipeline"):
        follow(table, root, 4, 3)
    assert ids(root) == [0, 1, 2, 10, 11, 12]


def overwrite(root):
    table = DeltaTable(root)
    write_deltalake(table, pa.schema(table.schema()).empty_table(), mode="overwrite")


def create_or_replace(root):
    DeltaTable.create(root, DeltaTable(root).schema(), mode="overwrite")


@pytest.mark.parametrize("replace", [overwrite, create_or_replace])
def test_a_replacement_of_all_rows_stops_a_writer_and_is_seen_at_the_start(root, replace):
    table = LakeTable(spec(root, IDS))
    for number in range(2):
        files = written(spec(root, IDS), {"id": number})
        before = number - 1 if number else None
        table.commit(files, Transaction({"a": number}, {"a": before}, {"pipeline": "p"}))
    assert table.versions(["a"]) == {"a": 1}
    replace(root)
    with pytest.raises(SinkError, match="has replaced rows of the table"):
        follow(table, root, 2, 1)
    assert ids(root) == []
    replaced = delta_log.DeltaLog(root).restored({"pipeline": "p"})
    assert (replaced.to.versions(["a"]), replaced.at.versions(["a"])) == ({}, {"a": 1})


def test_a_restore_is_seen_also_where_the_log_is_not_read_on(root, monkeypatch):
    monkeypatch.setattr(LogTail, "max_behind", 2)
    table = LakeTable(spec(root, IDS))
    for number in range(3):
        add(table, root, number)
    DeltaTable(root).restore(1)
    busy = LakeTable(spec(root, IDS))
    for number in range(3):
        add(busy, root, number, "b")
    DeltaTable(root).create_checkpoint()
    with pytest.raises(SinkError, match="RESTORE"):
        follow(table, root, 3, 2)


@pytest.mark.parametrize(
    ("operation", "parameters", "replaces"),
    [
        ("CLONE", {"source": "x"}, True),
        ("REPLACE TABLE AS SELECT", {}, True),
        ("WRITE", {"mode": "Overwrite"}, True),
        ("WRITE", {"mode": "Overwrite", "predicate": "day = 1"}, False),
        ("WRITE", {"mode": "Append"}, False),
        ("REPLACE COLUMNS", {}, False),
        ("DELETE", {"predicate": "id = 1"}, False),
    ],
)
def test_operations_that_replace_all_rows_are_told_from_others(operation, parameters, replaces):
    commit = {"operation": operation, "operationParameters": parameters}
    assert (log_tail.replacement(commit) is not None) == replaces


@pytest.mark.parametrize("hint", ["", "{", "null", '{"size":3}', '{"version":"x"}'])
def test_a_damaged_hint_at_the_last_checkpoint_counts_as_none(root, hint):
    table = LakeTable(spec(root, IDS))
    add(table, root, 0)
    add(table, root, 1)
    DeltaTable(root).create_checkpoint()
    Path(root, "_delta_log", "_last_checkpoint").write_text(hint)
    assert follow(table, root, 2, 1)
    assert ids(root) == [0, 1, 2]


def test_blank_lines_in_a_commit_of_another_engine_are_skipped(root):
    table = LakeTable(spec(root, IDS))
    add(table, root, 0)
    assert table.versions(["a"]) == {"a": 0}
    path = Path(root, "_delta_log", f"{1:020}.json")
    path.write_text('{"commitInfo":{"operation":"WRITE"}}\n\n')
    assert follow(table, root, 1, 0)
    assert ids(root) == [0, 1]


def test_what_is_recorded_of_an_application_does_not_expire(root):
    table = LakeTable(spec(root, IDS))
    add(table, root, 0, "quiet")
    add(table, root, 1, "quiet")
    properties = {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
    DeltaTable(root).alter.set_table_properties(properties)
    assert LakeTable(spec(root, IDS)).versions(["quiet"]) == {"quiet": 1}
    assert follow(table, root, 2, 1, "quiet")
