import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.source import event, reader_of, spec

from headrace import EpochMillis
from headrace.errors import RecordsDeletedError
from headrace.kafka.dead_letters.limiter import BadRuns
from headrace.kafka.read.range_reader import Chunk
from headrace.ledger.sums import Fate
from headrace.model import Metadata, OffsetRange, TopicPartition, event_schema
from headrace.pipelines.ledger.counting.tally import LedgerRule
from headrace.pipelines.source.datasource import row_schema
from headrace.pipelines.source.reading.reader import ReadRange, TaskReader
from headrace.sinks.api import DELETED
from headrace.testing.memory import MemoryCluster, MemoryRecord

NUMBERS = TopicPartition("numbers", 0)
NANOSECONDS = 1_763_000_000_000_000_000
VALUES = {"event": event(1), "bad": b"not json", "tombstone": None}


class UnreadableHeaders(MemoryRecord):
    """As the client library answers when the name of a header is not UTF-8."""

    def headers(self):
        raise SystemError("returned a result with an exception set")

    def set_headers(self, headers):
        """As the client library: what stands in place of those that can't be read."""


@dataclass(frozen=True)
class Records:
    """A cluster of one partition with exactly these records."""

    records: tuple[MemoryRecord, ...]

    def read(self, ranges):
        yield Chunk(ranges[0].partition, self.records, len(self.records))


@pytest.fixture
def reader(tmp_path):
    def of(*records, **changes):
        found = spec(Records(records), "numbers", tmp_path, **changes)
        return reader_of(found, OffsetRange(NUMBERS, 0, len(records)), 0, topic_id="id")

    return of


def rows(reader):
    return [row for table in reader.tables() for row in table.to_pylist()]


def test_headers_that_can_not_be_read_are_null(reader):
    headers = (("a", b"1"), ("a", None))
    records = (MemoryRecord(0, event(0), header=headers), UnreadableHeaders(1, event(1)))
    found = rows(reader(*records, MemoryRecord(2, event(2)), metadata=(Metadata.HEADERS,)))
    read = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert [row["_headers"] for row in found] == [read, None, []]


def test_rows_name_their_record_for_ever(reader):
    records = (MemoryRecord(0, event(0)), MemoryRecord(1, event(1)))
    place = (Metadata.TOPIC_ID, Metadata.PARTITION, Metadata.OFFSET)
    found = rows(reader(*records, metadata=place))
    assert [[row[name] for name in place] for row in found] == [["id", 0, 0], ["id", 0, 1]]


def test_records_that_are_left_out_give_neither_rows_nor_dead_letters(reader):
    left_out = frozenset({(NUMBERS, 0, -1), (NUMBERS, 1, -1), (NUMBERS, 2, 5)})
    records = (MemoryRecord(0, event(0)), MemoryRecord(1, b"not json"), MemoryRecord(2, event(2)))
    found = reader(*records, left_out=left_out)
    assert len(rows(found)) == 1
    report = found.report()
    assert (report.dead, report.position) == ((), 3)


@given(kinds=st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=12))
def test_of_a_compacted_topic_each_record_is_a_row_a_dead_letter_or_a_tombstone(kinds):
    records = tuple(MemoryRecord(n, VALUES[kind]) for n, kind in enumerate(kinds))
    rule = LedgerRule(3600, None, None)
    found = spec(
        Records(records), "numbers", Path("unused"), leaves_out_tombstones=True, ledger=rule
    )
    reader = reader_of(found, OffsetRange(NUMBERS, 0, len(kinds)), 0, topic_id="id")
    offsets = [row["_offset"] for row in rows(reader)]
    report = reader.report()
    assert offsets == [n for n, kind in enumerate(kinds) if kind == "event"]
    assert [letter.offset for letter in report.dead] == [
        n for n, kind in enumerate(kinds) if kind == "bad"
    ]
    assert (report.tombstones, report.position) == (kinds.count("tombstone"), len(kinds))
    judged = [kind for kind in kinds if kind != "tombstone"]
    bad = [n for n, kind in enumerate(judged) if kind == "bad"]
    assert (report.records, report.bad_runs) == (len(judged), BadRuns.of(bad, len(judged)))
    doors = {Fate.OUT: "event", Fate.DEAD: "bad", Fate.TOMBSTONE: "tombstone"}
    expected = {fate: kinds.count(kind) for fate, kind in doors.items() if kind in kinds}
    assert {line.key.fate: line.sums.number for line in report.ledger} == {
        Fate.IN: len(kinds),
        **expected,
    }


KEYS = {"text": "ä".encode(), "empty": b"", "not-utf8": b"\xff", "none": None}
NUMBERS_AS_KEYS = {
    "7": b"7", "-9223372036854775808": str(-(2**63)).encode(), "too-large": str(2**63).encode(),
    "zeros": b"007", "blank": b" 7", "text": b"x", "none": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "keys", "good", "own"),
    [
        ("name", KEYS, {"text": "ä", "empty": ""}, b"name 1"),
        ("n", NUMBERS_AS_KEYS, {"7": 7, "-9223372036854775808": -(2**63)}, b"1"),
    ],
)
@given(data=st.data())
def test_where_tombstones_delete_each_record_is_a_row_in_its_order_or_a_dead_letter(
    data, key, keys, good, own
):
    others = {"event": own, "other-key": b'{"name": "name 1"}', "no-key": None, "bad": own}
    kinds = data.draw(st.lists(st.sampled_from([*keys, *others]), min_size=1, max_size=12))
    records = tuple(
        MemoryRecord(
            n,
            b"not json" if kind == "bad" else event(1) if kind in others else None,
            (keys | others)[kind],
            timestamp_ms=n,
        )
        for n, kind in enumerate(kinds)
    )
    rule = LedgerRule(3600, None, None)
    found = spec(Records(records), "numbers", Path("unused"), null_key=key, ledger=rule)
    reader = reader_of(found, OffsetRange(NUMBERS, 0, len(kinds)), 0, topic_id="id")
    read = [(row["_offset"], row[key], row[DELETED]) for row in rows(reader)]
    fields = {"n": 1, "name": "name 1"}
    assert read == [
        (n, good.get(kind, fields[key]), kind != "event")
        for n, kind in enumerate(kinds)
        if kind in good or kind == "event"
    ]
    report = reader.report()
    dead = [
        (n, "not-json" if kind == "bad" else "bad-key")
        for n, kind in enumerate(kinds)
        if kind not in good and kind != "event"
    ]
    assert sorted((letter.offset, letter.reason) for letter in report.dead) == dead
    assert (report.tombstones, report.records) == (0, len(kinds))
    sums = {line.key.fate: line.sums for line in report.ledger}
    came = {Fate.IN: len(kinds), Fate.OUT: len(read), Fate.DEAD: len(dead)}
    assert {fate: sum_.number for fate, sum_ in sums.items()} == {
        fate: number for fate, number in came.items() if number
    }


def test_the_event_time_of_a_row_that_deletes_is_the_timestamp_of_its_record(tmp_path):
    class Visit:
        user: str
        at: EpochMillis

    found = spec(
        Records((MemoryRecord(0, None, b"u", timestamp_ms=1_763_000_000_123),)),
        "numbers",
        tmp_path,
        schema=event_schema(Visit),
        event_time="at",
        null_key="user",
    )
    reader = reader_of(found, OffsetRange(NUMBERS, 0, 1), 0, topic_id="id")
    [row] = rows(reader)
    assert (row["user"], row["at"].timestamp(), row[DELETED]) == ("u", 1_763_000_000.123, True)


def test_the_time_of_a_tombstone_counts_as_that_of_the_newest_record(reader):
    records = (MemoryRecord(0, event(0), timestamp_ms=1), MemoryRecord(1, None, timestamp_ms=2))
    found = reader(*records, leaves_out_tombstones=True)
    assert len(rows(found)) == 1
    assert found.report().last_timestamp_ms == 2


def test_a_dead_letter_of_a_null_value_names_the_declaration_that_leaves_it_out(reader):
    found = reader(MemoryRecord(0, None))
    assert rows(found) == []
    (letter,) = found.report().dead
    assert letter.reason == "null-value"
    assert "compaction=True" in letter.detail


def test_a_dead_letter_whose_headers_can_not_be_read_says_so(reader):
    bad = reader(UnreadableHeaders(0, b"not json"))
    assert rows(bad) == []
    (letter,) = bad.report().dead
    assert (letter.value, letter.headers) == (b"not json", ())
    assert letter.detail.endswith("its headers are left out: the name of one is not UTF-8")


def test_a_timestamp_that_is_none_or_no_milliseconds_is_null(reader):
    given = (1_763_000_000_123, -1, NANOSECONDS)
    records = [MemoryRecord(n, event(n), timestamp_ms=at) for n, at in enumerate(given)]
    found = reader(*records, metadata=(Metadata.TIMESTAMP,))
    seen = [row["_timestamp"] for row in rows(found)]
    assert [at and at.timestamp() for at in seen] == [1_763_000_000.123, None, None]
    assert found.report().last_timestamp_ms == -1


def test_a_key_may_be_any_bytes(reader):
    keys = (b"\xff\x00", b"", None)
    records = [MemoryRecord(n, event(n), key) for n, key in enumerate(keys)]
    assert [row["_key"] for row in rows(reader(*records))] == list(keys)


def test_records_that_are_gone_name_the_command_of_their_pipeline(tmp_path):
    cluster, range_ = MemoryCluster(), OffsetRange(NUMBERS, 0, 3)
    cluster.create("numbers")
    for number in range(3):
        cluster.append("numbers", 0, event(number))
    cluster.delete_before("numbers", 0, 2)
    found = spec(cluster, "numbers", tmp_path)
    remedy = f"`headrace checkpoint reset {found.pipeline} --to table --accept-loss`"
    readers = (
        reader_of(found, range_, 0, topic_id="id"),
        TaskReader(found, [ReadRange(range_, 0)]),
    )
    for reader in readers:
        with pytest.raises(RecordsDeletedError, match=re.escape(remedy)):
            list(reader.tables())


def test_columns_for_headrace_alone_have_names_that_no_event_and_no_step_may_have(tmp_path):
    asked = spec(MemoryCluster(), "numbers", tmp_path)
    added = {"heartbeat_after_us": 1, "null_key": "n", "adds_lineage": True}
    names = row_schema(spec(MemoryCluster(), "numbers", tmp_path, **added)).names
    own = [name for name in names if name not in row_schema(asked).names]
    assert len(own) == len(added)
    assert [name for name in own if not name.startswith("_headrace")] == []
