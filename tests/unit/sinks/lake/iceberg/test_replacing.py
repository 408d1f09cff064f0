"""What a commit of `reprocess` makes of an Iceberg table, against a reference of a few lines."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table import DataScan
from pyiceberg.types import LongType

from headrace import Iceberg, Lake, UnsafeValues
from headrace.errors import SinkError
from headrace.model import OffsetRange, TopicPartition
from headrace.sinks.api import SinkContext, Transaction
from headrace.sinks.lake.iceberg.catalog import CatalogTable
from headrace.sinks.lake.iceberg.table import IcebergTable

AT = datetime(2019, 11, 24, 7, tzinfo=UTC)
ROWS = pa.schema(
    {
        "at": pa.timestamp("us", "UTC"),
        "id": pa.string(),
        "n": pa.int64(),
        "tags": pa.list_(pa.string()),
    }
)
PLACES = pa.schema({"_topic": pa.string(), "_partition": pa.int32(), "_offset": pa.int64()})
EVERYTHING = [OffsetRange(TopicPartition("clicks", p), 0, 1000) for p in range(2)]


class Table:
    """A table with a pipeline that writes to it, and reprocessings."""

    def __init__(self, folder, *, places=True, **declared):
        declared = {"partition_by": ("hour", "n")} | declared
        self.sink = Lake("clicks", format=Iceberg(), **declared)
        self.context = SinkContext("p", str(folder), {}, event_time="at")
        self.schema = pa.unify_schemas([ROWS, PLACES]) if places else ROWS
        self.batches = 0
        self.parts = 0

    @property
    def place(self):
        return CatalogTable.of(self.context, "default", "clicks")

    def fill(self, *batches):
        for rows in batches:
            driver = self.sink.open(self.context, self.schema)
            expected = {"app": self.batches or None}
            self.batches += 1
            transaction = Transaction({"app": self.batches}, expected, {"pipeline": "p"})
            driver.commit(self.written(driver, rows), transaction, 0)
            driver.close(0.0)

    def written(self, driver, rows):
        writer = driver.writers("a" * 32)
        writer.write(pa.Table.from_pylist(rows, self.schema))
        return writer.close()

    def open(self, ranges=EVERYTHING, before_commit=lambda _: None):
        driver = self.sink.open_to_reprocess(self.context, self.schema, "id")
        driver.begin(ranges, before_commit)
        return driver

    def replace(self, rows, driver=None, **options):
        driver = driver or self.open(**options)
        part = {"reprocess": self.parts + 1}, {"reprocess": self.parts or None}
        transaction = Transaction(*part, {"reprocess": {"pipeline": "p"}})
        figures = driver.commit(self.written(driver, rows), transaction, 0).figures
        self.parts += 1
        return figures["rows_added"], figures["rows_removed"], figures["rows_kept"]

    def content(self):
        return self.expected(self.sink.read(self.context, self.schema.names).to_pylist())

    def expected(self, rows):
        names = self.schema.names[1:]
        return Counter(repr([row["at"].isoformat(), *(row[n] for n in names)]) for row in rows)

    def files(self):
        tasks = self.place.existing().scan().plan_files()
        return {task.file.file_path.removeprefix("file://") for task in tasks}

    def on_disk(self):
        return {str(path) for path in Path(self.context.lake).rglob("*.parquet")}


def row(offset, n=0, *, id_=None, partition=0, tags=("a",), late=0):
    return {
        "at": AT + timedelta(days=late),
        "id": f"e{offset}" if id_ is None else id_,
        "n": n,
        "tags": list(tags),
        "_topic": "clicks",
        "_partition": partition,
        "_offset": offset,
    }


@pytest.mark.parametrize("places", [False, True])
def test_rows_that_are_right_stay_in_their_files(tmp_path, places):
    table = Table(tmp_path, places=places)
    rows = [row(offset, offset % 3) for offset in range(20)]
    table.fill(rows[:10], rows[10:])
    before = table.files()
    assert table.replace(rows) == (0, 0, 20)
    assert table.files() == before == table.on_disk()
    summary = table.place.existing().current_snapshot().summary
    assert json.loads(summary["headrace.positions"]) == {"": {"reprocess": 1}}


RECORDS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 7), st.integers(0, 2), st.sampled_from("xy")),
    max_size=12,
)


@settings(max_examples=8)
@given(old=RECORDS, new=RECORDS, range_=st.tuples(st.integers(0, 8), st.integers(0, 8)))
def test_by_place_the_rows_of_the_range_become_those_that_were_written(
    tmp_path_factory, old, new, range_
):
    start, end = sorted(range_)
    table = Table(tmp_path_factory.mktemp("lake"))
    before = [row(o, n, partition=p, tags=(tag,)) for p, o, n, tag in old]
    after = [row(o, n, partition=p, tags=(tag,)) for p, o, n, tag in new if start <= o < end]
    outside = [stored for stored in before if not start <= stored["_offset"] < end]
    table.fill(before[::2], before[1::2], [row(99)])
    changes = []
    ranges = [OffsetRange(TopicPartition("clicks", p), start, end) for p in range(2)]
    options = {"ranges": ranges, "before_commit": changes.append}
    added, removed, kept = table.replace(after, **options)
    assert table.content() == table.expected([*outside, *after, row(99)])
    assert (added + kept, removed + kept) == (len(after), len(before) - len(outside))
    [change] = changes
    assert (change.added.num_rows, change.removed.num_rows, change.kept) == (added, removed, kept)
    assert table.replace(after, **options) == (0, 0, len(after))


def test_by_id_a_row_is_replaced_wherever_its_event_time_was(tmp_path):
    table = Table(tmp_path, places=False)
    table.fill([row(n) for n in range(4)], [row(9, late=700)])
    after = [row(n, late=300) for n in range(3)]
    assert table.replace(after) == (3, 3, 0)
    assert table.content() == table.expected([*after, row(3), row(9, late=700)])
    assert table.replace(after) == (0, 0, 3)


def test_rows_whose_ids_were_rescued_are_told_apart(tmp_path):
    declared = {"partition_by": ("id",), "unsafe_values": UnsafeValues.RESCUE}
    table = Table(tmp_path, places=False, **declared)
    table.fill([row(n, id_=f"e/{n}") for n in range(4)])
    changes = []
    changed = [row(3, 9, id_="e/3"), row(4, id_="e/4")]
    assert table.replace(changed, before_commit=changes.append) == (2, 1, 0)
    assert changes[0].removed["id"].to_pylist() == ["e/3"]
    stored = table.sink.read(table.context).to_pylist()
    by_id = {json.loads(values["_rescued"])["id"]: values["n"] for values in stored}
    assert by_id == {"e/0": 0, "e/1": 0, "e/2": 0, "e/3": 9, "e/4": 0}
    assert table.replace(changed) == (0, 0, 2)


def test_rows_that_another_engine_has_deleted_come_back(tmp_path):
    table = Table(tmp_path, partition_by=("n",))
    rows = [row(n, n % 2) for n in range(6)]
    table.fill(rows)
    table.place.existing().delete("id = 'e2'")
    assert table.replace(rows) == (1, 0, 5)
    assert table.content() == table.expected(rows)


def test_a_column_that_the_rows_have_and_the_table_lacks_is_added(tmp_path):
    table = Table(tmp_path)
    table.fill([row(offset) for offset in range(4)])
    table.schema = table.schema.append(pa.field("site", pa.string()))
    rows = [row(offset) | {"site": "x" if offset else None} for offset in range(4)]
    assert table.replace(rows) == (3, 3, 1)
    assert table.content() == table.expected(rows)


def test_files_that_stay_are_planned_once_for_each_comparison(tmp_path, monkeypatch):
    table = Table(tmp_path)
    table.fill([row(1), row(2)])
    plan_files, plans = DataScan.plan_files, []

    def noting(scan):
        plans.append(scan)
        return plan_files(scan)

    monkeypatch.setattr(DataScan, "plan_files", noting)
    assert table.replace([row(1, 1), row(2)]) == (1, 1, 1)
    assert len(plans) == 1


def test_a_column_that_changes_while_the_table_is_opened_is_refused(tmp_path, monkeypatch):
    """Files that tasks write have its old field id, by which its values would read as null."""
    table = Table(tmp_path, partition_by=("hour",))
    table.fill([row(1)])
    open_table = IcebergTable.open

    def opened(opening):
        spec = open_table(opening)
        with table.place.existing().update_schema() as update:
            update.delete_column("n")
        with table.place.existing().update_schema() as update:
            update.add_column("n", LongType())
        return spec

    monkeypatch.setattr(IcebergTable, "open", opened)
    with pytest.raises(SinkError, match="its columns have changed"):
        table.replace([row(1, 5), row(2, 5)])


def test_there_must_be_a_table(tmp_path):
    with pytest.raises(SinkError, match="there is none yet"):
        Table(tmp_path).open()


class TestMeanwhile:
    """Snapshots of others between the comparison and the commit."""

    def replaced(self, table, rows, meanwhile, **options):
        left = [meanwhile]
        driver = table.open(before_commit=lambda _: left and left.pop()(), **options)
        return table.replace(rows, driver)

    def test_rows_that_others_add_stay(self, tmp_path):
        table = Table(tmp_path)
        table.fill([row(1, 1), row(2, 1)])
        ranges = [OffsetRange(TopicPartition("clicks", 0), 0, 100)]
        rows = [row(1, 2), row(2, 1)]
        assert self.replaced(table, rows, lambda: table.fill([row(500)]), ranges=ranges) == (
            1,
            1,
            1,
        )
        assert table.content() == table.expected([*rows, row(500)])

    def test_the_pipeline_that_runs_beside_it_commits_and_merges(self, tmp_path):
        table = Table(tmp_path)
        table.fill([row(1)], [row(2)])
        live = table.sink.open(table.context, table.schema)
        assert table.replace([row(1, tags="z"), row(2)]) == (1, 1, 1)
        transaction = Transaction({"app": 3}, {"app": 2}, {"pipeline": "p"})
        assert live.commit(table.written(live, [row(3)]), transaction, 0).is_new
        live.close(0.0)
        assert table.sink.merge_small_files(table.context).written
        assert table.content() == table.expected([row(1, tags="z"), row(2), row(3)])
        assert table.sink.position_store(table.context).restored({"pipeline": "p"}) is None

    @pytest.mark.parametrize("deleted", [False, True])
    def test_files_that_are_rewritten_are_compared_again(self, tmp_path, deleted):
        table = Table(tmp_path, partition_by=("n",))
        table.fill([row(1), row(2)], [row(3), row(4)])
        rows = [row(1), row(2, tags="z"), row(3), row(4)]

        def rewrite():
            if deleted:
                table.place.existing().delete("id = 'e1'")
            else:
                table.sink.merge_small_files(table.context)

        expected = (2, 1, 2) if deleted else (1, 1, 3)
        assert self.replaced(table, rows, rewrite) == expected
        assert table.content() == table.expected(rows)
        rewritten = {path for path in table.on_disk() if "-reprocessed-" in path}
        assert rewritten <= table.files()

    def test_another_reprocessing_or_a_reset_fails_the_commit(self, tmp_path):
        table = Table(tmp_path)
        table.fill([row(1)])
        before = table.content()
        with pytest.raises(SinkError, match="another reprocessing or a reset"):
            self.replaced(table, [row(1, 2)], lambda: table.replace([row(1)]))
        assert table.content() == before

    def test_what_fails_before_the_commit_leaves_no_files_of_its_own(self, tmp_path):
        table = Table(tmp_path)
        table.fill([row(1, 1), row(2, 1)])

        def fail(_):
            raise OSError("the ledger's entry can't be written")

        driver = table.open(before_commit=fail)
        pieces = table.written(driver, [row(1, 1, tags="z"), row(2, 1)])
        with pytest.raises(SinkError, match="ledger"):
            driver.commit(pieces, Transaction({"reprocess": 1}, {"reprocess": None}), 0)
        driver.discard(pieces)
        assert table.on_disk() == table.files()
