"""Iceberg tables without duplicates: on one driver, on several, beside other engines."""

import json
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Iceberg, Lake, Unique, UnsafeValues
from headrace.errors import TableMismatchError
from headrace.sinks.api import CommitRejection, SinkContext, Transaction
from headrace.sinks.lake.iceberg.catalog.catalogs import CatalogTable
from headrace.testing.sink_lab import NOON, row, schema

UNIQUE = Unique(by=["id"], within=timedelta(days=2))
TABLE = Lake("clicks", partition_by=["hour"], format=Iceberg(), unique=UNIQUE)


class Writer:
    """A pipeline: batches of tasks, as the end of a batch commits them."""

    def __init__(self, folder, name="p", sink=TABLE):
        self.context = SinkContext(name, str(folder), {}, event_time="at")
        self.sink, self.batch = sink, 0
        self.open()

    def open(self):
        """As a new process does."""
        self.driver = self.sink.open(self.context, schema())

    def written(self, *tasks, driver=None):
        pieces = []
        for number, rows in enumerate(tasks):
            writer = (driver or self.driver).writers(f"{number:032x}")
            assert not writer.write(pa.Table.from_pylist(rows, schema()))
            pieces += writer.close()
        return pieces

    def commit(self, pieces):
        """Commits; returns the ids that were dropped, and those that were rejected."""
        name, dropped, rejected = self.context.pipeline, [], []
        transaction = Transaction({name: self.batch + 1}, {name: self.batch or None})
        while isinstance(done := self.driver.commit(pieces, transaction, 0), CommitRejection):
            pieces = done.pieces
            dropped += done.repeats["id"].to_pylist()
            rejected += [json.loads(values.values)["id"] for values in done.rejected]
        assert done.is_new
        self.batch += 1
        return sorted(dropped), sorted(rejected)

    def add(self, *tasks):
        return self.commit(self.written(*tasks))

    def rows(self):
        rows = self.sink.read(self.context).to_pylist()
        return sorted((values["id"], values["name"]) for values in rows)

    @property
    def table(self):
        return CatalogTable.of(self.context, "default", "clicks").existing()


@pytest.fixture
def writer(tmp_path):
    writer = Writer(tmp_path)
    yield writer
    writer.driver.close(0.0)


def test_duplicates_are_dropped_and_other_values_rejected(writer):
    assert writer.add([row(1), row(2), row(1)], [row(2), row(3)]) == ([1, 2], [])
    assert writer.add([row(1), row(2, "b"), row(4)]) == ([1], [2])
    assert writer.rows() == [(1, "a"), (2, "a"), (3, "a"), (4, "a")]


def test_a_new_driver_finds_the_rows_in_the_files_also_after_a_merge(writer):
    writer.add([row(1)])
    writer.add([row(2)])
    writer.sink.merge_small_files(writer.context)
    assert writer.add([row(1), row(3)]) == ([1], [])
    writer.driver.close(0.0)
    writer.open()
    assert writer.add([row(n) for n in range(1, 5)]) == ([1, 2, 3], [])
    assert [id_ for id_, _ in writer.rows()] == [1, 2, 3, 4]


def test_what_another_pipeline_commits_meanwhile_is_looked_at(writer, tmp_path):
    other = Writer(tmp_path, "q")
    for number in range(0, 9, 3):
        pieces = writer.written([row(number), row(number + 1)])
        other.add([row(number + 1), row(number + 2)])
        assert writer.commit(pieces) == ([number + 1], [])
    other.driver.close(0.0)
    assert [id_ for id_, _ in writer.rows()] == list(range(9))


def test_event_times_further_apart_than_within_are_not_compared(writer):
    late = row(1) | {"at": NOON + timedelta(days=20)}
    writer.add([row(1)])
    assert writer.add([late]) == ([], [])
    assert writer.add([late, row(1)]) == ([1, 1], [])


def test_rows_that_another_engine_appends_are_known_and_deleted_ones_are_not(tmp_path):
    writer = Writer(tmp_path, sink=replace(TABLE, partition_by=()))
    writer.add([row(1), row(2)])
    writer.table.append(pa.Table.from_pylist([row(7)], schema()))
    assert writer.add([row(7), row(3)]) == ([7], [])
    writer.table.delete("id = 2")
    assert writer.add([row(1), row(2), row(7)]) == ([1, 7], [])
    writer.driver.close(0.0)
    assert [id_ for id_, _ in writer.rows()] == [1, 2, 3, 7]


def test_snapshots_that_have_expired_leave_no_gap(writer, tmp_path):
    other = Writer(tmp_path, "q")
    writer.add([row(1)])
    for number in (2, 3):
        other.add([row(number)])
    other.driver.close(0.0)
    table = writer.table
    old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots[:-1]]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert writer.add([row(n) for n in range(1, 5)]) == ([1, 2, 3], [])


def test_rows_are_compared_by_the_values_that_were_rescued(tmp_path):
    sink = replace(
        TABLE,
        partition_by=["name"],
        unsafe_values=UnsafeValues.RESCUE,
        unique=replace(UNIQUE, by=["name"]),
    )
    writer = Writer(tmp_path, sink=sink)
    writer.add([row(1, "a/1"), row(1, "a/2")])
    writer.driver.close(0.0)
    writer.open()
    same = [row(1, "a/1"), row(2, "a/2"), row(1, "a/3")]
    assert writer.add(same) == ([1], [2])
    writer.driver.close(0.0)


def test_what_is_written_once_more_adds_the_rows_that_are_missing(tmp_path):
    writer = Writer(tmp_path, sink=replace(TABLE, partition_by=()))
    writer.add([row(n) for n in range(4)])
    writer.table.delete("id = 2")
    again = writer.sink.open_to_reprocess(writer.context, schema(), "id")
    changes = []
    again.begin([], changes.append)
    pieces = writer.written([row(n) for n in range(4)], driver=again)
    transaction = Transaction({"reprocess": 1}, {"reprocess": None})
    rejection = again.commit(pieces, transaction, 0)
    assert sorted(rejection.repeats["id"].to_pylist()) == [0, 1, 3]
    assert again.commit(rejection.pieces, transaction, 0).figures["rows_added"] == 1
    assert [change.added["id"].to_pylist() for change in changes] == [[0, 1, 2, 3], [2]]
    again.close(0.0)
    assert writer.add([row(2), row(5)]) == ([2], [])
    writer.driver.close(0.0)


BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 6), st.sampled_from("ab")), max_size=6),
        st.sampled_from(["", "restart", "merge", "other"]),
    ),
    max_size=5,
)


@settings(max_examples=8)
@given(batches=BATCHES)
def test_the_table_holds_the_first_row_of_each_key_whatever_happens(tmp_path_factory, batches):
    folder = tmp_path_factory.mktemp("lake")
    writer, other, first = Writer(folder), Writer(folder, "q"), {}
    for rows, event in batches:
        if event == "restart":
            writer.driver.close(0.0)
            writer.open()
        elif event == "merge" and first:
            writer.sink.merge_small_files(writer.context)
        (other if event == "other" else writer).add([row(*values) for values in rows])
        for id_, name in rows:
            first.setdefault(id_, name)
    assert writer.rows() == sorted(first.items())
    writer.driver.close(0.0), other.driver.close(0.0)


def test_a_table_of_the_first_version_of_the_format_is_refused(tmp_path):
    context = SinkContext("p", str(tmp_path), {}, event_time="at")
    place = CatalogTable.of(context, "default", "clicks")
    place.open_catalog().create_namespace("default")
    version = {"format-version": "1"}
    place.open_catalog().create_table(place.identifier, schema(), properties=version)
    with pytest.raises(TableMismatchError, match="needs version 2"):
        replace(TABLE, partition_by=()).open(context, schema())
