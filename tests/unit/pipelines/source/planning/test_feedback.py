"""What finished batches teach: bytes of records, and how far event time has come."""

import json
import random

import pytest
from tests.contracts.source import reader_of, spec

from headrace.model import EpochMillis, OffsetRange, TopicPartition, event_schema
from headrace.pipelines.late_data.event_clock import EventClock, reached
from headrace.pipelines.source.offsets import allocate_batch
from headrace.pipelines.source.planning.feedback import Feedback
from headrace.pipelines.source.report import RangeReport
from headrace.testing.memory import MemoryCluster

MAX_BYTES = 10_000_000
HOUR_US = 3_600_000_000
NOW_MS = 1_764_000_000_000
NOW_US = NOW_MS * 1000


def report(partition=0, records=1, bytes_=0, event_times=(), topic="t"):
    range_ = OffsetRange(TopicPartition(topic, partition), 0, records)
    return RangeReport(
        range=range_,
        position=records,
        records=records,
        bytes=bytes_,
        last_timestamp_ms=0,
        event_times=event_times,
    )


def batches(sizes, count, *, feedback, limit=MAX_BYTES):
    """Bytes of ``count`` batches of the partitions' records, whose sizes are given in order."""
    start = dict.fromkeys(sizes, 0)
    latest = {p: len(records) for p, records in sizes.items()}
    for _ in range(count):
        ends = allocate_batch(
            start,
            latest,
            max_records=1_000_000,
            max_bytes=limit,
            mean_bytes=feedback.mean_bytes("t", sizes),
        )
        read = {p: sizes[p][start[p] : ends[p]] for p in sizes}
        reports = [report(p, len(records), sum(records)) for p, records in read.items() if records]
        yield sum(map(sum, read.values()))
        feedback, start = feedback.after(reports, {}), ends


def known(**means):
    reports = [report(int(p[1:]), 10, 10 * mean) for p, mean in means.items()]
    return Feedback().after(reports, {})


def test_sizes_are_of_all_reports_of_a_partition_and_not_of_the_last():
    read = [report(0, 10_000, 10_000 * 100_000), report(0, 10, 10 * 50), report(1, 10, 10 * 50)]
    means = Feedback().after(read, {}).mean_bytes("t", [0, 1])
    assert means[0] == pytest.approx(100_000, rel=0.01)
    assert means[1] == 50


def test_a_partition_of_which_nothing_is_known_is_like_the_others():
    assert known(p0=100, p1=300).mean_bytes("t", [0, 7])[7] == 200
    assert known(p0=100).mean_bytes("other", [0]) is None


def test_batches_keep_to_the_limit_where_large_and_small_records_are_in_partitions_of_their_own():
    sizes = {0: [100_000] * 2_000, 1: [50] * 2_000}
    for found in batches(sizes, 15, feedback=known(p0=100_000, p1=50)):
        assert MAX_BYTES / 2 <= found <= 2 * MAX_BYTES


def test_batches_keep_to_the_limit_where_large_and_small_records_are_mixed():
    chance = random.Random(7)
    mixed = [chance.choice([100_000, 50]) for _ in range(4_000)]
    for found in batches({0: mixed}, 15, feedback=known(p0=50_000)):
        assert MAX_BYTES / 2 <= found <= 2 * MAX_BYTES


def test_a_partition_that_has_turned_large_is_believed_at_once_and_for_a_while():
    small = known(p0=50)
    for _ in range(5):
        small = small.after([report(0, 100_000, 100_000 * 50)], {})
    turned = small.after([report(0, 1_000, 1_000 * 100_000)], {})
    assert turned.mean_bytes("t", [0])[0] == 100_000
    after = turned.after([report(0, 1_000, 1_000 * 50)], {})
    assert 100 < after.mean_bytes("t", [0])[0] < 50_000


def test_a_record_larger_than_a_batch_is_read_alone():
    found = list(batches({0: [30_000_000] * 3}, 3, feedback=known(p0=30_000_000)))
    assert found == [30_000_000] * 3


def test_each_partition_has_an_event_clock_of_its_own():
    reports = [report(0, event_times=[(NOW_US - 5, 2)]), report(1, event_times=[(NOW_US - 9, 2)])]
    learned = Feedback().after([*reports, report(1, event_times=[(NOW_US - 7, 98)])], {"t": NOW_MS})
    assert learned.event_us("t") == {0: NOW_US - 5, 1: NOW_US - 7}
    assert learned.newest_us == {"t": NOW_US - 5}
    assert learned.event_us("other") == {}


class Timed:
    at: EpochMillis


def test_a_range_reports_the_event_time_without_its_outlier(tmp_path):
    cluster = MemoryCluster()
    cluster.create("t", 1)
    times_ms = [NOW_MS - 1_000 + n for n in range(500)]
    times_ms[123] = NOW_MS + 3_600_000
    for at in times_ms:
        cluster.append("t", 0, json.dumps({"at": at}).encode())
    found = spec(
        cluster,
        "t",
        tmp_path,
        schema=event_schema(Timed),
        event_time="at",
        latest_ahead_us=24 * HOUR_US,
        metadata=(),
    )
    reader = reader_of(found, OffsetRange(TopicPartition("t", 0), 0, 500), NOW_MS, topic_id="id")
    assert sum(table.num_rows for table in reader.tables()) == 500
    samples = reader.report().event_times
    assert reached(samples) == (NOW_MS - 1_000 + 496) * 1000
    assert sum(events for _, events in samples) == 500


def test_clocks_that_are_not_known_begin_at_those_of_the_offsets():
    known = Feedback(clocks={"t": {0: EventClock(9, 8)}, "u": {0: EventClock(3)}})
    found = known.with_clocks_from({"t": {0: 5, 1: 6}, "v": {}})
    assert found.clocks == {
        "t": {0: EventClock(9, 8), 1: EventClock(6)},
        "u": {0: EventClock(3)},
        "v": {},
    }
