"""What a target holds, counted again: rows, counts that it keeps, dead letters."""

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.pipelines.ledger.test_comparison import ALLOWED, entry, line
from tests.unit.sinks.lake.delta.test_table import AT, add, spec

from headrace import UnsafeValues
from headrace.errors import SinkError
from headrace.events.event_hash import hash_positions, hash_texts
from headrace.kafka.dead_letters.letters import StoredDeadLetter
from headrace.ledger.sums import Fate, Hop, Sums
from headrace.model import DeadLetter, TopicPartition
from headrace.pipelines.late_data.rule import LATE_EVENT
from headrace.pipelines.ledger.comparison import HopComparison
from headrace.pipelines.ledger.counting.letters import recount_letters
from headrace.pipelines.ledger.counting.recount import Recount, added_counts, recount
from headrace.pipelines.ledger.counting.table_columns import ledger_columns
from headrace.pipelines.ledger.counting.tally import POSITION, LedgerRule
from headrace.sinks.api import WindowCounts
from headrace.sinks.lake.delta.snapshot import lake_snapshot

CLICKS = TopicPartition("clicks", 0)
RULE = LedgerRule(3600, "at", "id")


def letter(offset, partition=CLICKS, reason="not-json", topic_id="id"):
    dead = DeadLetter(partition, offset, reason, "", None, b"x")
    return StoredDeadLetter(dead, "fused", "1", topic_id, 0, (partition, 0), 0)


def lost(letters, dead=3, rejected=0):
    lines = [
        line(Hop.READ, Fate.DEAD, (dead, 0, 0), window=None),
        line(Hop.SINK, Fate.DEAD, (rejected, 0, 0)),
    ]
    balance = HopComparison([entry(lines)], ALLOWED, has_steps=False)
    found = recount_letters(letters, balance).differences
    return [(difference.partition, difference.number) for difference in found]


def test_letters_of_records_count_once():
    assert not lost([letter(1), letter(2), letter(3), letter(3)])
    assert lost([letter(1), letter(2), letter(2), letter(2)]) == [("clicks/0", 1)]


@pytest.mark.parametrize(
    "other",
    [letter(10), letter(1, topic_id="another"), letter(1, reason=LATE_EVENT)],
    ids=["from before the ledger", "of a topic that is gone", "of a late event"],
)
def test_letters_of_other_records_stand_for_none(other):
    assert lost([letter(2), letter(3), other]) == [("clicks/0", 1)]


def test_letters_of_rows_may_be_there_twice_and_not_be_missing():
    no_record = TopicPartition("clicks", -1)
    rows = [letter(-1, no_record, "not-unique")] * 3
    assert not lost(rows, dead=0, rejected=2)
    assert lost(rows[:1], dead=0, rejected=2) == [("", 1)]


def test_counts_of_short_windows_add_up_to_those_of_the_ledger():
    counts = WindowCounts(60, "at", {0: 2, 60: 3, 3600: 5, -60: 7}, {})
    recount = added_counts(counts, RULE)
    assert recount.sums == {0: Sums(5), 3600: Sums(5), -3600: Sums(7)}
    assert not recount.has_ids


def test_counts_by_another_time_are_not_comparable():
    counts = WindowCounts(60, "seen_at", {0: 2}, {})
    assert added_counts(counts, RULE).failure
    assert added_counts(WindowCounts(60, "at", {}, {}), RULE, ["at"]).failure


def test_counts_know_what_they_recorded():
    counts = WindowCounts(60, "at", {}, {"one": 1, "two": 2})
    assert counts.versions(["two", "three"]) == {"two": 2}


class Rows:
    """Rows of a table in memory, some of which can't be read."""

    def __init__(self, *batches, failure=None):
        self._table, self._failure = pa.Table.from_batches(batches), failure

    column_names = property(lambda self: self._table.column_names)

    def batches(self, columns):
        yield from self._table.select(columns).to_batches()
        if self._failure:
            raise self._failure


def batch(*rows):
    ids, times, offsets = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "meta": pa.array([{"id": id_} for id_ in ids], pa.struct([("id", pa.string())])),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "_topic": ["clicks"] * len(rows),
            "_partition": pa.array([0] * len(rows), pa.int32()),
            "_offset": pa.array(offsets, pa.int64()),
        }
    )


NESTED = LedgerRule(3600, "at", "meta.id")
BATCHES = (
    batch(("a", 0, 1), ("b", 3_599_999_999, 2), (None, -1, 3), ("c", None, 4)),
    batch(("é" * 300, 3_600_000_000, 5), ("a", 0, 6)),
)


def hashes(*ids):
    return int(hash_texts(pa.array(ids, pa.string())).sum(dtype=np.uint64))


def test_duckdb_counts_rows_by_window_and_adds_up_the_hashes_of_their_ids():
    recounted = recount(Rows(*BATCHES), NESTED)
    assert recounted.has_ids
    assert recounted.sums == {
        None: Sums(1, 0, hashes("c")),
        -3600: Sums(1, 0, 0),
        0: Sums(3, 0, hashes("a", "b", "a")),
        3600: Sums(1, 0, hashes("é" * 300)),
    }


def test_rows_without_an_id_are_known_by_their_places():
    recounted = recount(Rows(*BATCHES), LedgerRule(3600, None, None))
    places = hash_positions("clicks", 0, np.arange(1, 7))
    assert recounted.sums == {None: Sums(6, 0, int(places.sum(dtype=np.uint64)))}


def test_ids_are_not_compared_in_windows_with_rows_from_before_the_columns_of_places():
    old, new = batch(("a", 0, 1)), batch(("b", 7_200_000_000, 2))
    nulls = [pa.nulls(1, old.schema.field(name).type) for name in POSITION]
    old = pa.RecordBatch.from_arrays([*old.columns[: -len(POSITION)], *nulls], old.schema.names)
    recounted = recount(Rows(old, new), LedgerRule(3600, "at", None))
    [place] = hash_positions("clicks", 0, np.array([2])).tolist()
    assert recounted.sums == {0: Sums(1), 7200: Sums(1, 0, place)}
    assert [recounted.compares_ids(start) for start in (0, 7200)] == [False, True]


@pytest.mark.parametrize("name", ["window_start", "events", "Window_Start", "count", "hash"])
@pytest.mark.parametrize("column", ["at", "meta"])
def test_columns_may_have_any_name(name, column):
    renamed = [name if known == column else known for known in BATCHES[0].schema.names]
    rows = [rows.rename_columns(renamed) for rows in BATCHES]
    names = {"at": "at", "meta": "meta"} | {column: name}
    recounted = recount(Rows(*rows), LedgerRule(3600, names["at"], f"{names['meta']}.id"))
    assert recounted == recount(Rows(*BATCHES), NESTED)


def test_rows_without_columns_of_ids_are_only_counted():
    recounted = recount(Rows(*BATCHES), NESTED, ["meta"])
    assert not recounted.has_ids
    assert recounted.sums == {None: Sums(1), -3600: Sums(1), 0: Sums(3), 3600: Sums(1)}
    assert recount(Rows(*BATCHES), NESTED, ["at"]).failure
    empty = Rows(batch(("a", 0, 1)).slice(0, 0))
    assert recount(empty, NESTED).sums == {}


def test_rows_that_can_not_be_read_are_the_error_of_the_sink():
    failure = SinkError("lake/clicks", "a file is gone")
    with pytest.raises(SinkError, match="a file is gone"):
        recount(Rows(*BATCHES, failure=failure), NESTED)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("at", ["1970-01-01 00:00:00.000000Z"]),
        ("at", [0]),
        ("id", [7]),
        ("_offset", ["1"]),
        ("meta", ["{}"]),
    ],
)
def test_columns_of_other_types_tell_no_windows_and_no_ids(column, values):
    table = pa.table(batch(("a", 0, 1)).columns, ["meta", "at", "_topic", "_partition", "_offset"])
    table = table.append_column("id", pa.array(["7"]))
    table = table.set_column(table.column_names.index(column), column, [values])
    [rows] = table.to_batches()
    event_id = {"_offset": None, "meta": "meta.id"}.get(column, "id")
    rule = LedgerRule(3600, "at", event_id)
    recounted, duplicates = recount(Rows(rows), rule), ledger_columns(rule, table)
    if column == "at":
        assert "no column 'at' of a type of times" in recounted.failure
        assert set(duplicates.sums) == {None}
    else:
        assert (recounted.sums, recounted.has_ids) == ({0: Sums(1)}, False)
        assert duplicates.sums == {0: Sums(1)}


def test_a_table_that_has_lost_its_rows_is_known_to_have_none():
    assert recount(Rows(batch(("a", 0, 1)).slice(0, 0)), RULE) == Recount()


def test_rows_without_a_column_that_can_be_read_are_not_counted_as_none():
    unreadable = Rows(batch(("a", 0, 1)).select([]))
    assert "no column" in recount(unreadable, LedgerRule(3600, None, "id")).failure


def test_ids_of_a_lake_that_were_rescued_count_as_they_came(tmp_path):
    ids = pa.table({"id": ["a/b", "c/", "ok", None]})
    target = spec(
        str(tmp_path), {"id": pa.string(), "n": pa.int64()}, "id", unsafe_values=UnsafeValues.RESCUE
    )
    add(target, 0, *ids.to_pylist())
    came = ids.append_column("at", pa.array([AT] * 4, pa.timestamp("us", "UTC")))
    recounted = recount(lake_snapshot(target.root, {}), RULE)
    assert recounted == recount(Rows(*came.to_batches()), RULE)
