"""Commits into a table that is unique: on one driver, on several, beside other engines."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.unit.sinks.lake.deletion_vectors import delete_by_vector
from tests.unit.sinks.lake.delta.test_table import TIME, spec, write_nanoseconds

from headrace import Lake, Unique, UnsafeValues
from headrace.errors import SinkError, TableMismatchError
from headrace.model import FieldType
from headrace.sinks.api import CommitRejection, DeclaredRows, Transaction
from headrace.sinks.lake.delta.log import live_paths
from headrace.sinks.lake.delta.log_tail import LogTail
from headrace.sinks.lake.delta.table import LakeTable, read_table
from headrace.sinks.lake.files.data_file import WrittenFile
from headrace.sinks.lake.unique import filter as unique_filter
from headrace.sinks.lake.writer import PartitionedWriter

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
UNIQUE = Unique(by=["id"], within=timedelta(days=2))
COLUMNS = {"id": pa.string(), "n": pa.int64(), "campaign": pa.string(), "received": TIME}


def row(id_, n=0, hours=0.0, **more):
    return {"id": id_, "n": n, "at": NOON + timedelta(hours=hours), "campaign": "a", **more}


class Writer:
    """A pipeline: batches of tasks, as the end of a batch commits them."""

    def __init__(self, spec, name="a"):
        self.spec, self.name, self.batch = spec, name, -1
        self.open()

    def open(self):
        """As a new process does."""
        self.table = LakeTable(self.spec)

    def write(self, *tasks):
        return [file for number, rows in enumerate(tasks) for file in self.files(number, rows)]

    def files(self, task, rows):
        writer = PartitionedWriter(self.spec, f"{task:08x}")
        assert writer.write(pa.Table.from_pylist(rows, self.spec.schema)) == []
        return writer.finish()

    def commit(self, files):
        """Commits; returns the ids that were dropped, and those that were rejected."""
        dropped, rejected = [], []
        while isinstance(done := self.attempt(files), CommitRejection):
            files = [WrittenFile.from_json(piece) for piece in done.pieces]
            dropped += done.repeats["id"].to_pylist()
            rejected += [json.loads(each.values)["id"] for each in done.rejected]
        assert done
        self.figures = self.table.unique.committed(files)
        self.batch += 1
        return sorted(dropped), sorted(rejected)

    def attempt(self, files):
        before = self.batch if self.batch >= 0 else None
        versions = {self.name: self.batch + 1}
        return self.table.commit(files, Transaction(versions, {self.name: before}))

    def add(self, *tasks):
        return self.commit(self.write(*tasks))

    def attempt_once(self, *tasks):
        """Goes on without the duplicates once, and is never committed."""
        done = self.table.unique.check(self.write(*tasks), self.table.version())
        assert done is None or isinstance(done, CommitRejection)

    def compact(self):
        if self.table.version() >= 0:
            self.table.compact(2, timedelta(days=1))

    def read(self):
        return read_table(self.spec.root).to_pylist() if self.table.version() >= 0 else []

    def rows(self):
        return sorted((each["id"], each["n"]) for each in self.read())


@pytest.fixture
def table(tmp_path):
    return made(tmp_path)


def made(tmp_path, unique=UNIQUE, columns=COLUMNS, **declared):
    partitions = ("day", "hour", "campaign")
    return Writer(spec(str(tmp_path / "clicks"), columns, *partitions, unique=unique, **declared))


def test_duplicates_within_a_task_between_tasks_and_between_batches_are_dropped(table):
    assert table.add([row("a"), row("b"), row("a")], [row("b"), row("c")]) == (["a", "b"], [])
    assert table.figures["lake_duplicate_rows"] == 2
    assert table.add([row("c"), row("d")]) == (["c"], [])
    assert table.add([row("a"), row("b"), row("c"), row("d")]) == (["a", "b", "c", "d"], [])
    assert table.figures["lake_duplicate_rows"] == 4
    assert table.rows() == [("a", 0), ("b", 0), ("c", 0), ("d", 0)]
    assert table.table.unique.figures() == {"lake_duplicates_by_hour": "2026-11-23T12 7"}


def test_a_key_with_other_values_is_rejected_and_the_first_row_stays(table):
    assert table.add([row("a", 1), row("a", 2)], [row("a", 1)]) == (["a"], ["a"])
    assert table.figures == {
        "lake_duplicate_rows": 1,
        "lake_conflicting_rows": 1,
        "lake_unchecked_rows": 0,
    }
    assert table.add([row("a", 3), row("b", 1)]) == ([], ["a"])
    assert table.rows() == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("by", [["id"], ["campaign", "id"]])
def test_rows_are_compared_by_the_values_that_were_rescued(tmp_path, by):
    unique = replace(UNIQUE, by=by)
    table = made(tmp_path, unique, unsafe_values=UnsafeValues.RESCUE)
    rows = [row("a", campaign="x/y"), row("a2", campaign="z/"), row("b", campaign="ok")]
    table.add(rows)
    for _ in range(2):
        assert table.add(rows) == (["a", "a2", "b"], [])
        [rejected] = table.attempt(table.write([row("a", 1, campaign="x/y")])).rejected
        assert json.loads(rejected.values)["campaign"] == "x/y"
        table.open()
    another_value = ([], ["a"] if by == ["id"] else [])
    assert table.add([row("a", campaign="z/")]) == another_value


def test_the_first_row_of_a_task_is_kept_whichever_partition_it_is_in(table):
    rows = [row("a", 1, campaign="z"), row("b", 0), row("a", 2, campaign="a")]
    assert table.add(rows) == ([], ["a"])
    assert table.rows() == [("a", 1), ("b", 0)]


def test_of_two_tasks_the_one_that_read_first_has_the_first_row(table):
    first, second = table.write([row("a", 1)], [row("a", 2)])
    assert table.commit([second, first]) == ([], ["a"])
    assert table.rows() == [("a", 1)]


def test_a_rejection_tells_the_row_and_why(table):
    table.add([row("a", 1)])
    done = table.attempt(table.write([row("a", 2, campaign="other")]))
    [rejected] = done.rejected
    assert json.loads(rejected.values) == {
        "at": "2026-11-23T12:00:00Z",
        "id": "a",
        "n": 2,
        "campaign": "other",
        "received": None,
    }
    assert (rejected.reason, rejected.detail) == (
        "conflicting-key",
        "a row with id a is there, with other values",
    )


def test_event_times_further_apart_than_within_are_not_compared(table):
    table.add([row("a", 1)])
    assert table.add([row("a", 2, hours=48), row("a", 3, hours=-48)]) == ([], ["a", "a"])
    # Slices are of six hours: the one at noon, eight on.
    assert table.add([row("a", 2, hours=54.1)]) == ([], [])
    assert table.add([row("a", 4, hours=60)]) == ([], ["a"])
    assert table.rows() == [("a", 1), ("a", 2)]


def test_a_late_row_is_compared_with_those_of_its_own_time(table):
    table.add([row("a", hours=-24 * 365)])
    table.add([row("b")])
    table.open()
    assert table.add([row("c")]) == ([], [])
    assert table.add([row("a", hours=-24 * 365), row("a")]) == (["a"], [])
    assert table.rows() == [("a", 0), ("a", 0), ("b", 0), ("c", 0)]


def test_a_new_driver_finds_the_rows_in_the_files_also_after_compaction(table):
    for n in range(4):
        table.add([row(f"k{n}", n), row(f"k{n}", n, hours=1, campaign=None, id=f"m{n}")])
    before = table.rows()
    table.table.compact(2, timedelta(0))
    duplicates = [row(f"k{n}", n) for n in range(4)]
    nulls = [row(f"m{n}", n, hours=1, campaign="") for n in range(4)]
    for _ in range(2):
        assert table.add(duplicates, nulls) == (
            sorted([f"k{n}" for n in range(4)] + [f"m{n}" for n in range(4)]),
            [],
        )
        table.open()
    assert table.rows() == before


def test_rows_without_a_key_or_an_event_time_are_kept_and_counted(table):
    rows = [row(None), row(None), row(""), row("a"), {**row("a"), "at": None}]
    assert table.add(rows) == ([], [])
    assert table.figures["lake_unchecked_rows"] == 4
    assert table.add(rows) == (["a"], [])


def test_a_column_that_is_ignored_may_differ(tmp_path):
    table = made(tmp_path, replace(UNIQUE, ignore=["received"]))
    assert table.add([row("a", received=NOON)], [row("a")]) == (["a"], [])
    table.open()
    assert table.add([row("a", received=NOON + timedelta(hours=1))]) == (["a"], [])


def test_rows_from_before_a_column_was_added_equal_those_where_it_is_null(tmp_path):
    narrow = {name: kind for name, kind in COLUMNS.items() if name != "received"}
    old = made(tmp_path, columns=narrow)
    old.add([row("a"), row("b")])
    new = made(tmp_path)
    new.batch = 0
    assert new.add([row("a"), row("b", received=NOON)]) == (["a"], ["b"])


def test_every_row_of_a_batch_may_be_a_duplicate(table):
    table.add([row("a")], [row("b")])
    assert table.add([row("b")], [row("a")]) == (["a", "b"], [])
    assert table.add([row("c")]) == ([], [])
    assert table.rows() == [("a", 0), ("b", 0), ("c", 0)]


def test_the_batch_of_a_driver_that_died_before_its_commit_is_decided_anew(table):
    table.add([row("a")])
    rows = [row("a"), row("b"), row("b", 1)]
    assert isinstance(table.attempt(table.write(rows)), CommitRejection)
    table.open()
    assert table.add(rows) == (["a"], ["b"])
    assert table.rows() == [("a", 0), ("b", 0)]


def test_a_batch_that_the_table_holds_already_changes_nothing(table):
    table.add([row("a")])
    table.open()
    table.batch = -1
    assert table.attempt(table.write([row("a")])) is False
    assert table.rows() == [("a", 0)]


def test_what_another_pipeline_committed_meanwhile_is_looked_at(table, tmp_path, monkeypatch):
    other = made(tmp_path)
    other.name = "b"
    table.add([row("a")])
    append, raced = LogTail.append, []

    def append_after_the_other(tail, *args):
        if not raced:
            raced.append(True)
            other.add([row("b", 1), row("c")])
        append(tail, *args)

    monkeypatch.setattr(LogTail, "append", append_after_the_other)
    assert table.add([row("b", 2), row("c"), row("d")]) == (["c"], ["b"])
    assert table.add([row("d")]) == (["d"], [])
    assert other.add([row("d"), row("e")]) == (["d"], [])
    assert table.rows() == [("a", 0), ("b", 1), ("c", 0), ("d", 0), ("e", 0)]


def test_rows_of_two_pipelines_that_make_the_table_at_once_are_unique(table, tmp_path):
    other = made(tmp_path)
    other.name = "b"
    files = table.write([row("a")])
    other.add([row("a")])
    assert table.commit(files) == (["a"], [])


def test_rows_that_another_engine_appends_are_known_and_those_that_it_deletes_are_not(table):
    table.add([row("a"), row("b")])
    appended = [{**row("c"), "day": NOON.date(), "hour": 12}]
    schema = DeltaTable(table.spec.root).schema()
    write_deltalake(
        table.spec.root, pa.Table.from_pylist(appended, pa.schema(schema)), mode="append"
    )
    assert table.add([row("c"), row("d")]) == (["c"], [])
    DeltaTable(table.spec.root).delete("id = 'a'")
    assert table.add([row("a"), row("b")]) == (["b"], [])
    assert [id_ for id_, _ in table.rows()] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "kind", [pa.dictionary(pa.int32(), pa.string()), pa.large_string(), pa.string_view()], ids=str
)
def test_rows_of_other_engines_are_known_whatever_type_of_arrow_their_files_name(tmp_path, kind):
    columns = {"id": pa.string(), "tags": pa.list_(pa.string())}
    table = Writer(spec(str(tmp_path / "clicks"), columns, unique=UNIQUE))
    table.add([row("a", tags=["x", None])])
    appended = pa.table(
        {
            "at": pa.array([NOON], TIME),
            "id": pa.array(["b"]).cast(kind),
            "tags": pa.ListArray.from_arrays([0, 2], pa.array(["x", None]).cast(kind)),
        }
    )
    write_deltalake(table.spec.root, appended, mode="append")
    assert table.add([row("b", tags=["x", None]), row("b", tags=["x"])]) == (["b"], ["b"])


def test_times_that_another_engine_wrote_in_nanoseconds_are_compared_in_microseconds(table):
    table.add([row("a")])
    write_nanoseconds(table.spec.root)
    table.open()
    assert table.add([row("a")]) == (["a"], [])


@pytest.mark.parametrize("restarts", [False, True])
def test_rows_that_another_engine_deletes_by_vectors_are_forgotten(table, restarts):
    rows = [row(id_, hours=number % 2, campaign="50% ü") for number, id_ in enumerate("abcdef")]
    table.add([*rows, row("x", campaign=None)])
    for deleted in ("ab", "abd"):  # the second vector of a file takes the place of the first
        delete_by_vector(table.spec.root, lambda stored, ids=deleted: stored["id"] in ids)
        if restarts:
            DeltaTable(table.spec.root).create_checkpoint()
            table.open()
        left = sorted(set("abcdef") - set(deleted))
        assert table.rows() == [(id_, 0) for id_ in [*left, "x"]]
        assert table.add(rows) == (left, [])
        assert table.rows() == [(id_, 0) for id_ in "abcdefx"]


def test_rows_from_before_the_table_was_unique_are_known(tmp_path):
    before = made(tmp_path, unique=None)
    files = before.write([row("a"), row("a"), row("b", 1)])
    assert before.attempt(files)
    table = made(tmp_path)
    table.batch = 0
    assert table.add([row("a"), row("b", 2), row("c")]) == (["a"], ["b"])


def test_a_log_that_was_cleaned_of_what_others_committed_is_no_gap(table, tmp_path):
    table.add([row("a")])
    other = made(tmp_path)
    other.name = "b"
    other.add([row("b")])
    log = tmp_path / "clicks" / "_delta_log"
    DeltaTable(table.spec.root).create_checkpoint()
    (log / f"{1:020}.json").rename(log / "elsewhere")
    (log / f"{0:020}.json").unlink()
    assert other.add([row("c")]) == ([], [])
    assert table.add([row("b"), row("c")]) == (["b", "c"], [])


def test_files_that_were_written_for_nothing_are_deleted(table):
    table.add([row("a")])
    files = table.write([row("a"), row("b")], [row("c")])
    done = table.attempt(files)
    kept = {WrittenFile.from_json(piece).path for piece in done.pieces}
    root = Path(table.spec.root)
    stored = {str(path.relative_to(root)) for path in root.rglob("part-*.parquet")}
    assert stored == kept | live_paths(DeltaTable(table.spec.root))


def test_very_many_conflicts_stop_the_batch_with_the_remedy(table, monkeypatch):
    monkeypatch.setattr(unique_filter, "MAX_CONFLICTS", 2)
    table.add([row("a")])
    with pytest.raises(SinkError, match=r"3 rows .* \(id\) .*Unique\.ignore"):
        table.attempt(table.write([row("a", 1), row("a", 2), row("a", 3)]))


@pytest.mark.parametrize(
    ("columns", "event_time", "reason"),
    [({"n": pa.int64()}, "at", "column 'id'"), (COLUMNS, None, "an event time")],
)
def test_a_table_whose_rows_lack_what_they_are_compared_by_is_refused(
    tmp_path, columns, event_time, reason
):
    wrong = replace(spec(str(tmp_path), columns, unique=UNIQUE), event_time=event_time)
    with pytest.raises(TableMismatchError, match=reason):
        LakeTable(wrong)


FIELDS = {"id": FieldType.STRING, "at": FieldType.TIMESTAMP}


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"unique": Unique("id", timedelta(days=1))}, "Unique.by is 'id'"),
        ({"unique": Unique([], timedelta(days=1))}, "Unique.by is ()"),
        ({"unique": Unique(["key"], timedelta(days=1))}, "Lake.unique: 'key' is not a column"),
        (
            {"unique": Unique(["id"], timedelta(days=1), ["x"])},
            "Lake.unique: 'x' is not a column",
        ),
        ({"unique": Unique(["id"], timedelta(days=1), "x")}, "Unique.ignore is 'x'"),
        ({"unique": Unique(["id"], timedelta(0))}, "Unique.within is datetime.timedelta(0)"),
        ({"unique": Unique(["id"], 5)}, "Unique.within is 5"),
        ({"unique": Unique(["id"])}, "Lake.unique needs Unique.within"),
        ({"unique": ["id"]}, "Lake.unique is ['id']"),
    ],
)
def test_wrong_declarations_are_found(declared, message):
    faults = list(Lake("t", **declared).faults(DeclaredRows(FIELDS, "at")))
    assert message in [fault.message.partition(";")[0] for fault in faults]


def test_a_unique_table_needs_an_event_time():
    [fault] = Lake("t", unique=UNIQUE).faults(DeclaredRows({"id": FieldType.STRING}, None))
    assert fault.message == "Lake.unique compares rows by event time, and there is none"


def test_all_pipelines_of_a_table_declare_it_unique():
    here, there = Lake("t", unique=UNIQUE), Lake("t")
    [fault] = here.faults_beside(there)
    assert fault.message == f"table 't' is declared with unique={UNIQUE!r} here and without unique"
    assert list(here.faults_beside(here)) == []
