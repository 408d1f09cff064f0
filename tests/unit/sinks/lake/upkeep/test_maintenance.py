"""Beside the batches: merged files, a short log, and failures that stay where they are."""

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures
from tests.unit.sinks.lake.delta.test_table import spec, written
from tests.waiting import LIMIT_SECONDS

from headrace.sinks.api import Transaction
from headrace.sinks.lake.delta.table import LakeTable, read_table
from headrace.sinks.lake.files.folder import TableFolder
from headrace.sinks.lake.upkeep import compaction, maintenance
from headrace.sinks.lake.upkeep.maintenance import (
    LATE_FILES,
    LOG_CHECKPOINT_VERSIONS,
    Maintenance,
    MaintenanceHold,
    TableCommit,
)

IDS = {"id": pa.int64()}


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "impressions")


class Writer:
    """Commits batches of one row, as a pipeline does, and says so to the maintenance."""

    def __init__(self, declared, maintenance):
        self.table = LakeTable(declared)
        self._spec = declared
        self._maintenance = maintenance

    def batch(self, number, *, late=False):
        files = written(self._spec, {"id": number})
        assert self.table.commit(files, Transaction({"a": number}, {}))
        over = frozenset(file.partition for file in files) if late else frozenset()
        self._maintenance.committed(TableCommit(self.table.version(), files, over))


def live(root):
    return len(DeltaTable(root).file_uris())


def on_disk(root):
    return len(list(Path(root).rglob("part-*.parquet")))


def ids(root):
    return sorted(read_table(root)["id"].to_pylist())


def run(declared, batches, **how):
    hold = MaintenanceHold(declared)
    writer = Writer(declared, hold)
    for number in batches:
        writer.batch(number, **how)
    hold.release(LIMIT_SECONDS)
    return hold.progress


def test_a_partition_is_merged_when_enough_small_files_have_gathered(root):
    declared = spec(root, IDS, "day", compact_files=3)
    assert run(declared, range(2)).files_merged == 0
    assert live(root) == 2
    assert run(declared, [2]).files_merged == 3
    assert live(root) == 1
    assert ids(root) == [0, 1, 2]


def test_files_of_late_rows_are_merged_sooner(root):
    declared = spec(root, IDS, "day")
    run(declared, range(LATE_FILES), late=True)
    assert live(root) < LATE_FILES
    assert ids(root) == list(range(LATE_FILES))


def test_merging_can_be_switched_off(root):
    assert run(spec(root, IDS, compact_files=0), range(9), late=True).files_merged == 0
    assert live(root) == 9


def test_the_log_gets_a_checkpoint_beside_the_batches(root):
    declared = spec(root, IDS, compact_files=0)
    run(declared, range(LOG_CHECKPOINT_VERSIONS + 1))
    newest = Path(root, "_delta_log", f"{LOG_CHECKPOINT_VERSIONS:020}.checkpoint.parquet")
    assert newest.exists()
    assert live(root) == LOG_CHECKPOINT_VERSIONS + 1


def test_pipelines_that_write_one_table_share_its_maintenance(root):
    declared = spec(root, IDS, "day", compact_files=4)
    holds = [MaintenanceHold(declared), MaintenanceHold(declared)]
    names = [thread.name for thread in threading.enumerate()]
    assert names.count(f"maintenance of {root}") == 1
    writers = [Writer(declared, hold) for hold in holds]
    for number in range(4):
        writers[number % 2].batch(number)
    holds[0].release(0.0)
    writers[1].batch(4)
    holds[1].release(LIMIT_SECONDS)
    assert ids(root) == [0, 1, 2, 3, 4]
    assert holds[0].progress.files_merged == holds[1].progress.files_merged >= 4


def test_a_table_of_another_engine_goes_on_without_merging(root):
    declared = spec(root, IDS, "day", compact_files=2)
    run(declared, [0])
    DeltaTable(root).alter.add_feature(
        [TableFeatures.DeletionVectors], allow_protocol_versions_increase=True
    )
    progress = run(declared, [1, 2])
    assert progress.failures
    assert "compact it there (OPTIMIZE)" in progress.reason
    assert ids(root) == [0, 1, 2]


def test_a_merge_that_failed_is_made_again(root, monkeypatch, caplog):
    monkeypatch.setattr(maintenance, "FIRST_DELAY_SECONDS", 0.01)
    declared = spec(root, IDS, "day", compact_files=2)
    read, tried, again = TableFolder.read, [], threading.Event()

    def disk_trouble(folder, path):
        tried.append(path)
        if len(tried) < 3:
            raise OSError("disk trouble")
        again.set()
        return read(folder, path)

    monkeypatch.setattr(TableFolder, "read", disk_trouble)
    hold = MaintenanceHold(declared)
    writer = Writer(declared, hold)
    for number in range(2):
        writer.batch(number)
    assert again.wait(LIMIT_SECONDS)
    hold.release(LIMIT_SECONDS)
    assert (hold.progress.failures, hold.progress.reason) == (2, "")
    assert "retrying in" in caplog.text
    assert live(root) == 1
    assert ids(root) == [0, 1]


def test_commits_that_come_during_the_last_attempt_are_not_forgotten(root, monkeypatch):
    declared = spec(root, IDS, "day", compact_files=3)
    hold = MaintenanceHold(declared)
    writer, beside = Writer(declared, hold), hold._maintenance
    last_checkpoint, batches = maintenance.last_checkpoint, iter([0, 1, 2])

    def before_it_is_told_to_end(*arguments):
        for number in batches:
            writer.batch(number)
        beside._closing.set()
        return last_checkpoint(*arguments)

    monkeypatch.setattr(maintenance, "last_checkpoint", before_it_is_told_to_end)
    beside._wake.set()
    hold.release(LIMIT_SECONDS)
    assert hold.progress.files_merged == 3


def test_who_wants_to_stop_is_not_kept_by_a_merge_and_no_file_is_left(root, monkeypatch):
    declared = spec(root, IDS, "day", compact_files=3)
    read, began, go_on = TableFolder.read, threading.Event(), threading.Event()

    def slow(folder, path):
        began.set()
        assert go_on.wait(LIMIT_SECONDS)
        return read(folder, path)

    monkeypatch.setattr(TableFolder, "read", slow)
    beside = Maintenance(declared)
    beside.start()
    writer = Writer(declared, beside)
    for number in range(3):
        writer.batch(number)
    assert began.wait(LIMIT_SECONDS)
    beside._abandoned.set()
    go_on.set()
    beside.close(0.0)
    assert (live(root), on_disk(root)) == (3, 3)
    assert beside.progress.failures == 0
    assert ids(root) == [0, 1, 2]


def test_a_hold_that_saw_no_commit_ends_at_once(root):
    hold = MaintenanceHold(spec(root, IDS))
    hold.release(0.0)
    assert hold.progress == maintenance.MaintenanceProgress()


def test_a_merge_commits_beside_batches_however_many_come_in_between(root, monkeypatch):
    """In a large table a swap takes longer than the pause between two batches."""
    declared = spec(root, IDS, "day", compact_files=3)
    hold = MaintenanceHold(declared)
    writer = Writer(declared, hold)
    for number in range(2):
        writer.batch(number)
    replace_files, numbers = compaction.replace_files, iter(range(3, 100))

    def among_batches(*arguments):
        for _ in range(25):
            writer.table.commit(
                written(declared, {"id": (number := next(numbers))}),
                Transaction({"a": number}, {"a": number - 1}),
            )
        replace_files(*arguments)

    monkeypatch.setattr(compaction, "replace_files", among_batches)
    writer.batch(2)
    hold.release(LIMIT_SECONDS)
    assert (hold.progress.files_merged, hold.progress.failures) == (3, 0)
    assert live(root) == 26
    assert ids(root) == list(range(28))
