"""What a commit of `reprocess` makes of a table of the lake, whatever its format.

A test module subclasses ``ReplacingContract`` and names its ``table``, a :class:`ReplacedTable`.
"""

import abc
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Lake, UnsafeValues
from headrace.errors import SinkError
from headrace.model import OffsetRange, TopicPartition
from headrace.sinks.api import SinkContext, Transaction
from headrace.sinks.lake.format import TableFormat

AT = datetime(2019, 11, 24, 7, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
ROWS = pa.schema({"at": TIME, "id": pa.string(), "n": pa.int64(), "tags": pa.list_(pa.string())})
PLACES = pa.schema({"_topic": pa.string(), "_partition": pa.int32(), "_offset": pa.int64()})
EVERYTHING = [OffsetRange(TopicPartition("clicks", p), 0, 1000) for p in range(2)]
RECORDS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 7), st.integers(0, 2), st.sampled_from("xy")),
    max_size=12,
)


class ReplacedTable(abc.ABC):
    """A table with a pipeline that writes to it, and reprocessings."""

    format: ClassVar[TableFormat]

    def __init__(self, folder, *, places=True, **declared):
        declared = {"partition_by": ("hour", "n")} | declared
        self.sink = Lake("clicks", format=self.format, **declared)
        self.context = SinkContext("p", str(folder), {}, event_time="at")
        self.schema = pa.unify_schemas([ROWS, PLACES]) if places else ROWS
        self.event_id = "id"
        self.batches = self.parts = 0

    @abc.abstractmethod
    def files(self):
        """Returns the paths of the files that hold its rows."""

    def on_disk(self):
        return {str(path) for path in Path(self.context.lake).rglob("*.parquet")}

    def fill(self, *batches):
        for rows in batches:
            driver = self.sink.open(self.context, self.schema)
            self.commit(driver, rows)
            driver.close(0.0)

    def commit(self, driver, rows):
        expected = {"app": self.batches or None}
        self.batches += 1
        transaction = Transaction({"app": self.batches}, expected, {"pipeline": "p"})
        return driver.commit(self.written(driver, rows), transaction, 0)

    def written(self, driver, rows):
        writer = driver.writers("a" * 32)
        writer.write(pa.Table.from_pylist(rows, self.schema))
        return writer.close()

    def open(self, ranges=EVERYTHING, before_commit=lambda _: None):
        driver = self.sink.open_to_reprocess(self.context, self.schema, self.event_id)
        driver.begin(ranges, before_commit)
        return driver

    def replace(self, rows, **options):
        driver = self.open(**options)
        part = {"reprocess": self.parts + 1}, {"reprocess": self.parts or None}
        transaction = Transaction(*part, {"reprocess": {"pipeline": "p"}})
        figures = driver.commit(self.written(driver, rows), transaction, 0).figures
        self.parts += 1
        return figures["rows_added"], figures["rows_removed"], figures["rows_kept"]

    def replace_meanwhile(self, rows, meanwhile, **options):
        """Replaces rows; ``meanwhile`` is called between the first comparison and its commit."""
        calls = [meanwhile]
        return self.replace(rows, before_commit=lambda _: calls and calls.pop()(), **options)

    def read(self, *names):
        return self.sink.read(self.context, names or None).to_pylist()

    def content(self):
        return self.expected(self.read(*self.schema.names))

    def expected(self, rows):
        names = self.schema.names[1:]
        return Counter(repr([row["at"].isoformat(), *(row[n] for n in names)]) for row in rows)

    def ids(self):
        return Counter(values["id"] for values in self.read("id"))


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


class ReplacingContract:
    table: type[ReplacedTable]

    @pytest.mark.parametrize("places", [False, True])
    def test_rows_that_are_right_stay_in_their_files(self, tmp_path, places):
        table = self.table(tmp_path, places=places)
        rows = [row(offset, offset % 3) for offset in range(20)]
        table.fill(rows[:10], rows[10:])
        before = table.files()
        assert table.replace(rows) == (0, 0, 20)
        assert table.files() == before == table.on_disk()

    @pytest.mark.parametrize("name", ["^id$", "*", "50% `id`"])
    def test_the_column_of_an_id_has_any_name(self, tmp_path, name):
        table = self.table(tmp_path, partition_by=())
        table.schema, table.event_id = pa.schema({"at": TIME, name: pa.string()}), name
        rows = [{"at": AT, name: f"e{n}"} for n in range(4)]
        table.fill(rows[:3])
        assert table.replace(rows) == (1, 0, 3)

    @pytest.mark.parametrize("places", [False, True])
    def test_a_row_that_is_in_the_table_as_often_as_it_was_written_stays(self, tmp_path, places):
        table = self.table(tmp_path, places=places)
        rows = [row(1), row(2, id_="e1"), row(2, id_="e1")]
        table.fill(rows[:2])
        assert table.replace(rows)[:2] == (1, 0)
        assert table.content() == table.expected(rows)

    @settings(max_examples=10)
    @given(old=RECORDS, new=RECORDS, range_=st.tuples(st.integers(0, 8), st.integers(0, 8)))
    def test_by_place_the_rows_of_the_range_become_those_that_were_written(
        self, tmp_path_factory, old, new, range_
    ):
        start, end = sorted(range_)
        table = self.table(tmp_path_factory.mktemp("lake"))
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
        figures = change.added.num_rows, change.removed.num_rows, change.kept
        assert figures == (added, removed, kept)
        assert table.replace(after, **options) == (0, 0, len(after))

    @settings(max_examples=10)
    @given(old=RECORDS, new=RECORDS, moved=st.integers(-1, 1))
    def test_by_id_each_row_is_there_and_none_goes_that_none_replaces(
        self, tmp_path_factory, old, new, moved
    ):
        table = self.table(tmp_path_factory.mktemp("lake"), places=False)
        before = [row(o, n, tags=(tag,), late=o) for _, o, n, tag in old]
        after = [row(o, n, tags=(tag,), late=o + moved) for _, o, n, tag in new]
        table.fill(before[::2], before[1::2])
        table.replace(after)
        assert not table.expected(after) - table.content()
        was, written = (Counter(values["id"] for values in rows) for rows in (before, after))
        counts = table.ids()
        assert all(counts[id_] >= max_ for id_, max_ in (was | written).items())
        untouched = [values for values in before if values["id"] not in written]
        assert not table.expected(untouched) - table.content()
        assert table.replace(after)[:2] == (0, 0)

    @pytest.mark.parametrize("places", [False, True])
    @pytest.mark.parametrize(
        "partition_by", [("_partition",), ("_topic", "id"), ("day", "hour"), ()]
    )
    def test_keys_may_be_partition_columns_of_the_table(self, tmp_path, partition_by, places):
        table = self.table(tmp_path, partition_by=partition_by)
        if not places:
            table.schema = pa.unify_schemas([ROWS, PLACES.remove(2)])
        rows = [row(offset, partition=offset % 2) for offset in range(6)]
        table.fill(rows[:4])
        changed = [row(0, 9), *rows[1:]]
        assert table.replace(changed) == (3, 1, 3)
        assert table.content() == table.expected(changed)

    def test_rows_whose_ids_were_rescued_are_told_apart(self, tmp_path):
        declared = {"partition_by": ("id",), "unsafe_values": UnsafeValues.RESCUE}
        table = self.table(tmp_path, places=False, **declared)
        table.fill([row(n, id_=f"e/{n}") for n in range(4)])
        changes = []
        changed = [row(3, 9, id_="e/3"), row(4, id_="e/4")]
        assert table.replace(changed, before_commit=changes.append) == (2, 1, 0)
        assert changes[0].removed["id"].to_pylist() == ["e/3"]
        assert sorted(changes[0].added["id"].to_pylist()) == ["e/3", "e/4"]
        by_id = {json.loads(values["_rescued"])["id"]: values["n"] for values in table.read()}
        assert by_id == {"e/0": 0, "e/1": 0, "e/2": 0, "e/3": 9, "e/4": 0}
        assert table.replace(changed) == (0, 0, 2)

    def test_rows_without_an_id_stay_as_they_are_and_others_are_refused(self, tmp_path):
        """It is not known which rows they would replace."""
        table = self.table(tmp_path, places=False)
        known = row(1, 1) | {"id": None}
        table.fill([known, row(2)])
        assert table.replace([known, row(2)]) == (0, 0, 2)
        with pytest.raises(SinkError, match="1 of the rows that it lacks have no 'id'"):
            table.replace([row(1, 2) | {"id": None}, row(2, 5)])
        assert table.content() == table.expected([known, row(2)])

    @pytest.mark.parametrize("moved", ["later", "from null", "to null"])
    @pytest.mark.parametrize("partition_by", [("day",), ("n",)])
    def test_an_id_is_known_wherever_its_old_event_time_put_it(self, tmp_path, moved, partition_by):
        table = self.table(tmp_path, places=False, partition_by=partition_by)
        before, after = [row(n) for n in range(4)], [row(n, late=300) for n in range(4)]
        nowhere = [values | {"at": None} for values in before]
        if moved == "from null":
            before = nowhere
        elif moved == "to null":
            after = nowhere
        table.fill(before, [row(9, late=700)])
        assert table.replace(after) == (4, 4, 0)
        assert table.ids() == Counter(f"e{n}" for n in (0, 1, 2, 3, 9))
        assert table.replace(after) == (0, 0, 4)

    def test_rows_from_before_the_columns_of_places_are_refused(self, tmp_path):
        table = self.table(tmp_path, places=False)
        table.fill([row(1)])
        table.schema = pa.unify_schemas([ROWS, PLACES])
        with pytest.raises(SinkError, match="rows without _topic, _partition, _offset"):
            table.replace([row(1)])
        assert len(table.read()) == 1

    def test_a_column_that_the_rows_have_and_the_table_lacks_is_added(self, tmp_path):
        table = self.table(tmp_path)
        table.fill([row(offset) for offset in range(4)])
        table.schema = table.schema.append(pa.field("site", pa.string()))
        rows = [row(offset) | {"site": "x" if offset else None} for offset in range(4)]
        assert table.replace(rows) == (3, 3, 1)
        assert table.content() == table.expected(rows)

    def test_rows_that_others_add_meanwhile_stay(self, tmp_path):
        table = self.table(tmp_path)
        table.fill([row(1, 1), row(2, 1)])
        rows = [row(1, 2), row(2, 1)]
        ranges = [OffsetRange(TopicPartition("clicks", 0), 0, 100)]
        done = table.replace_meanwhile(rows, lambda: table.fill([row(500)]), ranges=ranges)
        assert done == (1, 1, 1)
        assert table.content() == table.expected([*rows, row(500)])

    def test_the_pipeline_that_runs_beside_it_commits_and_merges(self, tmp_path):
        table = self.table(tmp_path)
        table.fill([row(1)], [row(2)])
        live = table.sink.open(table.context, table.schema)
        assert table.replace([row(1, tags="z"), row(2)]) == (1, 1, 1)
        assert table.commit(live, [row(3)]).is_new
        live.close(0.0)
        assert table.sink.merge_small_files(table.context).written
        assert table.content() == table.expected([row(1, tags="z"), row(2), row(3)])
        assert table.sink.position_store(table.context).restored({"pipeline": "p"}) is None

    def test_files_that_are_merged_meanwhile_are_compared_again(self, tmp_path):
        table = self.table(tmp_path)
        table.fill([row(1), row(2)], [row(3), row(4)])
        rows = [row(1), row(2, tags="z"), row(3), row(4)]
        done = table.replace_meanwhile(rows, lambda: table.sink.merge_small_files(table.context))
        assert done == (1, 1, 3)
        assert table.content() == table.expected(rows)
        rewritten = {path for path in table.on_disk() if "-reprocessed-" in path}
        assert rewritten <= table.files()

    def test_merges_of_other_files_are_no_hindrance(self, tmp_path):
        table = self.table(tmp_path)
        table.fill([row(1, 1)], [row(3)], [row(4)])
        attempts = []

        def merge(_):
            attempts.append(table.sink.merge_small_files(table.context).merged)

        rows = [row(1, 1, tags="z"), row(3), row(4)]
        assert table.replace(rows, before_commit=merge) == (1, 1, 2)
        assert attempts == [2]

    def test_another_reprocessing_or_a_reset_meanwhile_fails_the_commit(self, tmp_path):
        table = self.table(tmp_path)
        table.fill([row(1)])
        before = table.content()
        with pytest.raises(SinkError, match="another reprocessing or a reset"):
            table.replace_meanwhile([row(1, 2)], lambda: table.replace([row(1)]))
        assert table.content() == before

    def test_what_fails_before_the_commit_leaves_no_files_of_its_own(self, tmp_path):
        table = self.table(tmp_path)
        table.fill([row(1, 1), row(2, 1)])

        def fail(_):
            raise OSError("the ledger's entry can't be written")

        driver = table.open(before_commit=fail)
        pieces = table.written(driver, [row(1, 1, tags="z"), row(2, 1)])
        with pytest.raises(SinkError, match="ledger"):
            driver.commit(pieces, Transaction({"reprocess": 1}, {"reprocess": None}), 0)
        driver.discard(pieces)
        assert table.on_disk() == table.files()
