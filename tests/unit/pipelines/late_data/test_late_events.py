"""What a read task does with late events."""

import json

import pyarrow as pa
import pytest
from tests.contracts.source import reader_of, spec

from headrace.kafka.dead_letters.replayed import PartitionId, addressees
from headrace.model import EpochMillis, Metadata, OffsetRange, TopicPartition, event_schema
from headrace.pipelines.late_data.rule import LATE_EVENT, LateRule
from headrace.pipelines.source.reading import bad_records
from headrace.pipelines.source.report import LateCounts
from headrace.sinks.api import RejectedRow
from headrace.testing.memory import MemoryCluster

NOW_MS = 1_764_000_000_000
HOUR_US = 3_600_000_000
PARTITION = TopicPartition("t", 0)


class Timed:
    n: int
    at: EpochMillis | None


class Rows:
    """A side table's writer that keeps the rows; it rejects ``reject``."""

    def __init__(self, reject=None):
        self.tables, self.reject, self.aborted = [], reject, False

    def write(self, rows):
        self.tables.append(rows)
        bad = [i for i, n in enumerate(rows["n"].to_pylist()) if n == self.reject]
        return [RejectedRow(index, "unsafe-partition-value", "no") for index in bad]

    def close(self):
        return ["piece"]

    def abort(self):
        self.aborted = True


def read(folder, times_ms, rule, *, event_us=NOW_MS * 1000, replayed=None):
    """Reads one event for each time; the rows that stay, the report and the reader."""
    cluster = MemoryCluster()
    cluster.create("t", 1)
    for n, at in enumerate(times_ms):
        place = PartitionId(PARTITION, "id")
        headers = [addressees(["numbers"], place)] if n == replayed else []
        value = json.dumps({"n": n, "at": at}).encode()
        cluster.append("t", 0, value, headers=headers)
    declared = spec(
        cluster,
        "t",
        folder,
        schema=event_schema(Timed),
        event_time="at",
        metadata=(Metadata.OFFSET,),
        late=rule,
    )
    range_ = OffsetRange(PARTITION, 0, len(times_ms))
    reader = reader_of(
        declared, range_, NOW_MS, topic_id="id", may_hold_replays=True, event_us=event_us
    )
    rows = pa.concat_tables(reader.tables()).to_pylist()
    return [(row["n"], row["_offset"]) for row in rows], reader


TIMES = [NOW_MS, NOW_MS - 3_600_000, NOW_MS - 3_600_001, None]


def test_late_events_are_kept_and_counted_by_default(tmp_path):
    rows, reader = read(tmp_path, TIMES, LateRule(HOUR_US))
    report = reader.report()
    assert rows == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert (report.late.events, report.late.written, report.late.dead) == (1, 0, 0)


def test_nothing_is_late_before_the_partition_has_an_event_clock(tmp_path):
    rows, reader = read(tmp_path, TIMES, LateRule(HOUR_US, to_dead_letters=True), event_us=None)
    assert len(rows) == 4
    assert reader.report().late.events == 0


def test_a_late_record_is_a_dead_letter_with_its_bytes_and_not_a_bad_record(tmp_path):
    rows, reader = read(tmp_path, TIMES, LateRule(HOUR_US, to_dead_letters=True))
    report = reader.report()
    assert rows == [(0, 0), (1, 1), (3, 3)]
    [letter] = report.dead
    assert (letter.offset, letter.reason) == (2, LATE_EVENT)
    assert json.loads(letter.value) == {"n": 2, "at": TIMES[2]}
    assert "allowed lateness is 1:00:00" in letter.detail
    assert (report.late.events, report.late.dead, report.bad) == (1, 1, 0)
    assert report.bad_runs.longest == 0


def test_a_late_event_that_is_dropped_is_counted_and_in_no_other_place(tmp_path):
    rows, reader = read(tmp_path, TIMES, LateRule(HOUR_US, drops=True))
    report = reader.report()
    assert rows == [(0, 0), (1, 1), (3, 3)]
    assert (report.dead, report.late) == ((), LateCounts(events=1))


def test_a_late_record_that_was_replayed_for_the_pipeline_is_kept(tmp_path):
    rule = LateRule(HOUR_US, to_dead_letters=True)
    rows, reader = read(tmp_path, TIMES, rule, replayed=2)
    report = reader.report()
    assert len(rows) == 4
    assert (report.dead, report.late.events) == ((), 1)


def test_the_side_table_gets_late_events_with_the_columns_of_their_records(tmp_path):
    side = Rows()
    metadata = (Metadata.PARTITION, Metadata.OFFSET)
    rule = LateRule(HOUR_US, writers=lambda _: side, metadata=metadata)
    rows, reader = read(tmp_path, TIMES, rule)
    report = reader.report()
    assert rows == [(0, 0), (1, 1), (3, 3)]
    assert side.tables[0].column_names == ["n", "at", "_partition", "_offset"]
    assert side.tables[0]["_offset"].to_pylist() == [2]
    assert report.side_pieces == ("piece",)
    assert (report.late.events, report.late.written) == (1, 1)


def test_what_the_side_table_rejects_is_a_dead_letter_with_its_bytes(tmp_path):
    rule = LateRule(HOUR_US, writers=lambda _: Rows(reject=0))
    _, reader = read(tmp_path, [1, 2, NOW_MS], rule)
    report = reader.report()
    [letter] = report.dead
    assert (letter.offset, letter.reason) == (0, "unsafe-partition-value")
    assert (report.late.events, report.late.written, report.bad) == (2, 1, 1)


def test_what_was_written_is_removed_where_the_task_fails(tmp_path):
    side = Rows()
    _, reader = read(tmp_path, [1], LateRule(HOUR_US, writers=lambda _: side))
    reader.abort()
    assert side.aborted


def test_no_writer_is_opened_without_late_events(tmp_path):
    rule = LateRule(HOUR_US, writers=lambda _: pytest.fail("opened"))
    _, reader = read(tmp_path, [NOW_MS], rule)
    assert reader.report().side_pieces == ()


def test_late_dead_letters_are_bounded_and_those_of_a_side_table_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(bad_records, "MAX_BYTES", 100)
    times = [*[1] * 50, NOW_MS]
    _, reader = read(tmp_path / "letters", times, LateRule(HOUR_US, to_dead_letters=True))
    report = reader.report()
    assert report.omitted == 50 - len(report.dead) > 40
    _, reader = read(tmp_path / "table", times, LateRule(HOUR_US, writers=lambda _: Rows()))
    report = reader.report()
    assert (report.omitted, report.dead, report.late.written) == (0, (), 50)
