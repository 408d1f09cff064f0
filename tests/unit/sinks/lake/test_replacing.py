"""What a commit of `reprocess` makes of a table, against a reference of a few lines."""

import functools
import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.sink import add
from tests.unit.sinks.lake.deletion_vectors import delete_by_vector

from headrace import Lake, Unique, UnsafeValues
from headrace.errors import SinkError
from headrace.model import OffsetRange, TopicPartition
from headrace.sinks.api import Transaction
from headrace.sinks.lake.data_file import WriteSpec
from headrace.sinks.lake.delta_log import DeltaLog, live_paths
from headrace.sinks.lake.delta_replacing import LakeAddingDriver, LakeReplacingDriver
from headrace.sinks.lake.folder import TableFolder
from headrace.sinks.lake.row_comparison import RowIdentity
from headrace.sinks.lake.table import LakeTable, read_table
from headrace.sinks.lake.writer import PartitionedWriter

AT = datetime(2019, 11, 24, 7, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
COLUMNS = {"id": pa.string(), "n": pa.int64(), "tags": pa.list_(pa.string())}
PLACE = {"_topic": pa.string(), "_partition": pa.int32(), "_offset": pa.int64()}
ID = "reprocess"
EVERYTHING = [OffsetRange(TopicPartition("clicks", p), 0, 1000) for p in range(2)]


def spec(root, *, places, event_time="at", **declared):
    fields = {"at": TIME, **COLUMNS, **(PLACE if places else {})}
    layout = Lake("clicks", ("n",), **declared).layout
    return WriteSpec(str(root), pa.schema(fields), layout, event_time)


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


def written(target, rows):
    writer = PartitionedWriter(target, "t")
    writer.write(pa.Table.from_pylist(rows, target.schema))
    return writer.close()


def fill(target, *batches):
    for number, rows in enumerate(batches):
        writer = PartitionedWriter(target, "t")
        writer.write(pa.Table.from_pylist(rows, target.schema))
        add(LakeTable(target), writer.finish(), version=number)


def driver_of(target, *, places, ranges=EVERYTHING, before_commit=lambda _: None):
    driver = LakeReplacingDriver(
        target, RowIdentity() if places else RowIdentity("id"), ["at", "id"]
    )
    driver.begin(ranges, before_commit)
    return driver


def replace(target, rows, number=1, **options):
    driver = driver_of(target, **options)
    transaction = Transaction({ID: number}, {ID: number - 1 or None}, {"of": "test"})
    figures = driver.commit(written(target, rows), transaction, 0).figures
    return figures["rows_added"], figures["rows_removed"], figures["rows_kept"]


def content(target):
    names = target.schema.names
    return expected(target, read_table(target.root, names).to_pylist())


def expected(target, rows):
    names = target.schema.names[1:]
    return Counter(repr([row["at"].isoformat(), *(row[n] for n in names)]) for row in rows)


def files_of(target):
    return set(DeltaTable(target.root).file_uris())


@pytest.mark.parametrize("places", [False, True])
def test_rows_that_are_right_stay_in_their_files(tmp_path, places):
    target = spec(tmp_path / "clicks", places=places)
    rows = [row(offset, offset % 3) for offset in range(20)]
    fill(target, rows[:10], rows[10:])
    before = files_of(target)
    assert replace(target, rows, places=places) == (0, 0, 20)
    assert files_of(target) == before
    on_disk = {str(path) for path in (tmp_path / "clicks").rglob("*.parquet")}
    assert on_disk == {uri.removeprefix("file://") for uri in before}


@pytest.mark.parametrize("name", ["^id$", "*", "50% `id`"])
def test_the_column_of_an_id_has_any_name(tmp_path, name):
    columns = pa.schema({"at": TIME, name: pa.string()})
    target = WriteSpec(str(tmp_path / "clicks"), columns, Lake("clicks").layout, "at")
    rows = [{"at": AT, name: f"e{n}"} for n in range(4)]
    fill(target, rows[:3])
    driver = LakeReplacingDriver(target, RowIdentity(name), ["at", name])
    driver.begin(EVERYTHING, lambda _: None)
    transaction = Transaction({ID: 1}, {ID: None}, {"of": "test"})
    figures = driver.commit(written(target, rows), transaction, 0).figures
    assert figures == {"rows_added": 1, "rows_removed": 0, "rows_kept": 3}


@pytest.mark.parametrize("places", [False, True])
def test_a_row_that_is_in_the_table_as_often_as_it_was_written_stays(tmp_path, places):
    target = spec(tmp_path / "clicks", places=places)
    rows = [row(1), row(2, id_="e1"), row(2, id_="e1")]
    fill(target, rows[:2])
    assert replace(target, rows, places=places)[:2] == (1, 0)
    assert content(target) == expected(target, rows)


RECORDS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 7), st.integers(0, 2), st.sampled_from("xy")),
    max_size=12,
)


@settings(max_examples=30)
@given(old=RECORDS, new=RECORDS, range_=st.tuples(st.integers(0, 8), st.integers(0, 8)))
def test_by_place_the_rows_of_the_range_become_those_that_were_written(
    tmp_path_factory, old, new, range_
):
    start, end = sorted(range_)
    target = spec(tmp_path_factory.mktemp("lake") / "clicks", places=True)
    before = [row(o, n, partition=p, tags=(tag,)) for p, o, n, tag in old]
    after = [row(o, n, partition=p, tags=(tag,)) for p, o, n, tag in new if start <= o < end]
    outside = [each for each in before if not start <= each["_offset"] < end]
    fill(target, before[::2], before[1::2], [row(99)])
    changes = []
    ranges = [OffsetRange(TopicPartition("clicks", p), start, end) for p in range(2)]
    options = {"places": True, "ranges": ranges, "before_commit": changes.append}
    added, removed, kept = replace(target, after, **options)
    assert content(target) == expected(target, [*outside, *after, row(99)])
    assert added + kept == len(after)
    assert removed + kept == len(before) - len(outside)
    [change] = changes
    assert (change.added.num_rows, change.removed.num_rows, change.kept) == (added, removed, kept)
    assert replace(target, after, 2, **options) == (0, 0, len(after))


@settings(max_examples=30)
@given(old=RECORDS, new=RECORDS, moved=st.integers(-1, 1))
def test_by_id_each_row_is_there_and_none_goes_that_none_replaces(
    tmp_path_factory, old, new, moved
):
    target = spec(tmp_path_factory.mktemp("lake") / "clicks", places=False)
    before = [row(o, n, tags=(tag,), late=o) for _, o, n, tag in old]
    after = [row(o, n, tags=(tag,), late=o + moved) for _, o, n, tag in new]
    fill(target, before[::2], before[1::2])
    replace(target, after, places=False)
    assert not expected(target, after) - content(target)
    ids = Counter(each["id"] for each in before) | Counter(each["id"] for each in after)
    counts = Counter(read_table(target.root, ["id"])["id"].to_pylist())
    assert all(counts[id_] >= max_ for id_, max_ in ids.items())
    untouched = [each for each in before if each["id"] not in {one["id"] for one in after}]
    assert not expected(target, untouched) - content(target)
    assert replace(target, after, 2, places=False)[:2] == (0, 0)


@pytest.mark.parametrize("partition_by", [("_partition",), ("_topic", "id"), ("day", "hour"), ()])
def test_keys_may_be_partition_columns_of_the_table(tmp_path, partition_by):
    for places in (False, True):
        fields = {"at": TIME, **COLUMNS, **PLACE}
        layout = Lake("clicks", partition_by).layout
        target = WriteSpec(str(tmp_path / f"{places}"), pa.schema(fields), layout, "at")
        rows = [row(offset, partition=offset % 2) for offset in range(6)]
        fill(target, rows[:4])
        changed = [row(0, 9), *rows[1:]]
        assert replace(target, changed, places=places) == (3, 1, 3)
        assert content(target) == expected(target, changed)


def test_rows_whose_ids_were_rescued_are_told_apart(tmp_path):
    fields = {"at": TIME, **COLUMNS}
    layout = Lake("clicks", ("id",), unsafe_values=UnsafeValues.RESCUE).layout
    target = WriteSpec(str(tmp_path / "clicks"), pa.schema(fields), layout, "at")
    rows = [row(n, id_=f"e/{n}") for n in range(4)]
    fill(target, rows)
    changes = []
    changed = [row(3, 9, id_="e/3"), row(4, id_="e/4")]
    assert replace(target, changed, places=False, before_commit=changes.append) == (2, 1, 0)
    assert changes[0].removed["id"].to_pylist() == ["e/3"]
    assert sorted(changes[0].added["id"].to_pylist()) == ["e/3", "e/4"]
    stored = read_table(target.root).to_pylist()
    found = {json.loads(each["_rescued"])["id"]: each["n"] for each in stored}
    assert found == {"e/0": 0, "e/1": 0, "e/2": 0, "e/3": 9, "e/4": 0}
    assert replace(target, changed, 2, places=False) == (0, 0, 2)


def test_rows_without_an_id_stay_as_they_are_and_others_are_refused(tmp_path):
    """It is not known which rows they would replace."""
    target = spec(tmp_path / "clicks", places=False)
    known = row(1, 1) | {"id": None}
    fill(target, [known, row(2)])
    assert replace(target, [known, row(2)], places=False) == (0, 0, 2)
    with pytest.raises(SinkError, match="1 of the rows that it lacks have no 'id'"):
        replace(target, [row(1, 2) | {"id": None}, row(2, 5)], 2, places=False)
    assert content(target) == expected(target, [known, row(2)])


@pytest.mark.parametrize("moved", ["later", "from null", "to null"])
@pytest.mark.parametrize("partition_by", [("day",), ("n",)])
def test_an_id_is_found_wherever_its_old_event_time_put_it(tmp_path, moved, partition_by):
    fields = {"at": TIME, **COLUMNS}
    target = WriteSpec(
        str(tmp_path / "clicks"), pa.schema(fields), Lake("clicks", partition_by).layout, "at"
    )
    before, after = [row(n) for n in range(4)], [row(n, late=300) for n in range(4)]
    nowhere = [each | {"at": None} for each in before]
    if moved == "from null":
        before = nowhere
    elif moved == "to null":
        after = nowhere
    fill(target, before, [row(9, late=700)])
    assert replace(target, after, places=False) == (4, 4, 0)
    counts = Counter(read_table(target.root, ["id"])["id"].to_pylist())
    assert counts == Counter({f"e{n}": 1 for n in (0, 1, 2, 3, 9)})
    assert replace(target, after, 2, places=False) == (0, 0, 4)


def test_files_without_any_of_the_ids_are_not_read_whole(tmp_path, monkeypatch):
    target = spec(tmp_path / "clicks", places=False)
    fill(target, [row(1)], [row(2, late=3)], [row(3)])
    present = live_paths(DeltaTable(target.root))
    read, whole = TableFolder.read, set()

    def noting(folder, path, columns=None, *arguments):
        if columns is None:
            whole.add(path)
        return read(folder, path, columns, *arguments)

    monkeypatch.setattr(TableFolder, "read", noting)
    assert replace(target, [row(1), row(3)], places=False) == (0, 0, 2)
    assert len(present) == 3
    assert len(present & whole) == 2


def test_rows_from_before_the_columns_of_places_are_refused(tmp_path):
    fill(spec(tmp_path / "clicks", places=False), [row(1)])
    target = spec(tmp_path / "clicks", places=True)
    with pytest.raises(SinkError, match="rows without _topic, _partition, _offset"):
        replace(target, [row(1)], places=True)
    assert len(read_table(target.root)) == 1


def test_a_column_that_the_rows_have_and_the_table_lacks_is_added(tmp_path):
    target = spec(tmp_path / "clicks", places=True)
    fill(target, [row(offset) for offset in range(4)])
    fields = target.schema.append(pa.field("site", pa.string()))
    grown = WriteSpec(target.root, fields, target.layout, "at")
    rows = [row(offset) | {"site": "x" if offset else None} for offset in range(4)]
    assert replace(grown, rows, places=True) == (3, 3, 1)
    assert content(grown) == expected(grown, rows)


@pytest.mark.parametrize("property_", ["delta.appendOnly", "delta.enableChangeDataFeed"])
def test_tables_whose_rows_may_not_go_only_get_rows(tmp_path, property_):
    target = spec(tmp_path / "clicks", places=True)
    fill(target, [row(1), row(2)])
    features = {"raise_if_not_exists": False}
    DeltaTable(target.root).alter.set_table_properties({property_: "true"}, **features)
    with pytest.raises(SinkError, match=property_):
        replace(target, [row(1, 5), row(2)], places=True)
    assert replace(target, [row(1), row(2), row(3)], places=True) == (1, 0, 2)


def test_rows_that_deletion_vectors_took_from_a_unique_table_are_added(tmp_path):
    unique = Unique(by=["id"], within=timedelta(days=1))
    target = spec(tmp_path / "clicks", places=False, unique=unique)
    rows = [row(offset) for offset in range(4)]
    fill(target, rows)
    delete_by_vector(target.root, lambda stored: stored["id"] in ("e0", "e2"))
    driver, transaction = LakeAddingDriver(target, ["id"]), Transaction({ID: 1}, {ID: None})
    driver.begin(EVERYTHING, lambda _: None)
    without_duplicates = driver.commit(written(target, rows), transaction, 0).pieces
    assert driver.commit(without_duplicates, transaction, 0).figures["rows_added"] == 2
    assert content(target) == expected(target, rows)


def meanwhile(monkeypatch, *actions):
    """Does something before each of the first attempts of the commit."""
    commit, left = DeltaLog.replace_rows, list(actions)

    def late(self, table, *swap):
        if left:
            left.pop(0)()
        return commit(self, table, *swap)

    monkeypatch.setattr(DeltaLog, "replace_rows", late)
    return left


def test_rows_that_others_add_meanwhile_stay(tmp_path, monkeypatch):
    target = spec(tmp_path / "clicks", places=True)
    fill(target, [row(1, 1), row(2, 1)])
    other = functools.partial(fill_one, target, [row(500)], 1)
    meanwhile(monkeypatch, other)
    ranges = [OffsetRange(TopicPartition("clicks", 0), 0, 100)]
    assert replace(target, [row(1, 2), row(2, 1)], places=True, ranges=ranges) == (1, 1, 1)
    assert content(target) == expected(target, [row(1, 2), row(2, 1), row(500)])


def fill_one(target, rows, version):
    writer = PartitionedWriter(target, "t")
    writer.write(pa.Table.from_pylist(rows, target.schema))
    add(LakeTable(target), writer.finish(), version=version)


def test_files_that_are_merged_meanwhile_make_the_comparison_begin_anew(tmp_path, monkeypatch):
    target = spec(tmp_path / "clicks", places=True)
    fill(target, [row(1), row(2)], [row(3), row(4)])
    left = meanwhile(monkeypatch, lambda: LakeTable(target).compact())
    rows = [row(1), row(2, tags="z"), row(3), row(4)]
    assert replace(target, rows, places=True) == (1, 1, 3)
    assert not left
    assert content(target) == expected(target, rows)
    table = DeltaTable(target.root)
    on_disk = {path.name for path in (tmp_path / "clicks").rglob("*reprocessed*.parquet")}
    assert on_disk <= {uri.rpartition("/")[2] for uri in table.file_uris()}


def test_merges_of_other_files_are_no_hindrance(tmp_path, monkeypatch):
    target = spec(tmp_path / "clicks", places=True)
    fill(target, [row(1, 1)], [row(3)], [row(4)])
    attempts = []
    meanwhile(monkeypatch, lambda: LakeTable(target).compact())
    options = {"places": True, "before_commit": attempts.append}
    assert replace(target, [row(1, 1, tags="z"), row(3), row(4)], **options) == (1, 1, 2)
    assert len(attempts) == 1


def test_another_reprocessing_or_a_reset_meanwhile_fails_the_commit(tmp_path, monkeypatch):
    target = spec(tmp_path / "clicks", places=True)
    fill(target, [row(1)])
    before = content(target)
    meanwhile(monkeypatch, lambda: replace(target, [row(1)], places=True))
    with pytest.raises(SinkError, match="another reprocessing or a reset"):
        replace(target, [row(1, 2)], places=True)
    assert content(target) == before


def test_what_fails_before_the_commit_leaves_no_files_of_its_own(tmp_path):
    target = spec(tmp_path / "clicks", places=True)
    fill(target, [row(1, 1), row(2, 1)])

    def fail(_):
        raise OSError("the ledger's entry can't be written")

    driver = driver_of(target, places=True, before_commit=fail)
    pieces = written(target, [row(1, 1, tags="z"), row(2, 1)])
    with pytest.raises(SinkError, match="ledger"):
        driver.commit(pieces, Transaction({ID: 1}, {ID: None}), 0)
    driver.discard(pieces)
    on_disk = [str(path) for path in (tmp_path / "clicks").rglob("*.parquet")]
    assert len(on_disk) == len(files_of(target))
