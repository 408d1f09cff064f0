"""When values of a state are over: by stream time, at records, never by the clock."""

from datetime import timedelta

import pytest

from headrace.kafka.group.commits import OffsetCommit
from headrace.kafka.group.start_positions import StartPosition
from headrace.model import Guarantee, Topic, TopicPartition
from headrace.testing import WorkerBench
from headrace.workers import KeyState, OneToOne, Worker, WorkerRecord, WorkerTask, worker
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.state.changelog import StatePosition, StoredValues
from headrace.workers.state.expiry import Expiry, set_at_headers, set_at_of
from headrace.workers.state.stream_time import NEVER, StreamTime
from headrace.workers.state.values import PartitionState, WorkerState
from headrace.workers.tasks.record import ConsumedRecord

MUCH = 10**6
MINUTE = timedelta(minutes=1)


def partition(ttl=timedelta(milliseconds=100)):
    declared = Worker("w", Topic("t"), WorkerTask, state=int, state_ttl=ttl)
    whole = WorkerState(declared, pytest.fail)
    return whole, PartitionState(whole, 0)


def stored(values, set_at, stream_time_ms=NEVER):
    return StoredValues(values, set_at, position=StatePosition(0, "", stream_time_ms))


def value_at(kept, offset, key=b"k"):
    return kept.of(WorkerRecord("t", 0, offset, key)).get()


def test_stream_time_is_the_highest_timestamp_up_to_an_offset():
    time = StreamTime()
    assert (time.latest, time.at(0)) == (NEVER, NEVER)
    for offset, timestamp in ((3, 10), (4, 5), (6, 30), (7, -1), (9, 20)):
        time.read(offset, timestamp)
    assert [time.at(offset) for offset in range(2, 11)] == [-1, 10, 10, 10, 30, 30, 30, 30, 30]
    assert [time.before(offset) for offset in (3, 4, 6, 7)] == [-1, 10, 10, 30]
    assert time.latest == 30


def test_stream_time_is_kept_for_what_is_not_committed():
    time = StreamTime()
    for offset in range(10):
        time.read(offset, 10 * offset)
    time.forget(4)
    assert [time.before(4), time.at(4), time.at(5), time.latest] == [30, 40, 50, 90]
    time.forget(10)
    assert [time.before(10), time.latest] == [90, 90]


def test_records_that_are_read_again_change_no_stream_time():
    time = StreamTime()
    time.restore(50)
    for offset, timestamp in ((5, 40), (6, 60), (5, 40), (6, 60), (7, 55)):
        time.read(offset, timestamp)
    assert [time.at(offset) for offset in (5, 6, 7)] == [50, 60, 60]


def test_a_value_is_over_so_long_after_it_was_set_last():
    expiry = Expiry(100)
    expiry.set(b"a", 10)
    expiry.set(b"b", 20)
    expiry.set(b"a", 50)
    assert [expiry.is_over(b"a", now) for now in (10, 149, 150)] == [False, False, True]
    assert not expiry.is_over(b"unknown", MUCH)
    assert expiry.over(119, MUCH) == ()
    assert expiry.over(120, MUCH) == (b"b",)
    assert expiry.over(150, MUCH) == (b"b", b"a")


def test_what_is_over_stays_until_it_is_forgotten():
    expiry = Expiry(100)
    expiry.set(b"a", 0)
    assert expiry.over(100, MUCH) == expiry.over(100, MUCH) == (b"a",)
    expiry.forget(b"a")
    assert expiry.over(100, MUCH) == ()
    expiry.set(b"a", 50)
    assert (expiry.over(149, MUCH), expiry.over(150, MUCH)) == ((), (b"a",))


def test_the_oldest_come_first_and_not_too_many():
    expiry = Expiry(1)
    for number in (3, 1, 2):
        expiry.set(b"key %d" % number, number)
    assert expiry.over(MUCH, 1) == (b"key 1",)
    assert expiry.over(MUCH, 6) == (b"key 1", b"key 2")
    assert expiry.over(MUCH, 0) == ()


def test_a_key_that_is_set_again_and_again_takes_the_memory_of_one():
    expiry = Expiry(100)
    for time in range(1000):
        expiry.set(b"a", time)
        expiry.forget(b"b")
        expiry.set(b"b", time)
    assert len(expiry._heap) == 2


@pytest.mark.parametrize("headers", [None, (), ((b"other".decode(), b"1"),)])
def test_a_value_without_the_header_has_no_time(headers):
    assert set_at_of(headers) is None


def test_the_header_of_a_value_has_its_time():
    assert set_at_of(set_at_headers(7)) == 7
    [(name, _)] = set_at_headers(7)
    assert set_at_of(((name, b"seven"),)) is None
    assert set_at_of(((name, None),)) is None


def test_records_see_a_value_as_of_their_own_stream_time():
    _, kept = partition()
    kept.restore(stored({b"k": b"7"}, {b"k": 1000}, stream_time_ms=1000))
    for offset, timestamp in ((0, 1050), (1, 1100), (2, 1060)):
        kept.read(offset, timestamp)
    assert [value_at(kept, offset) for offset in range(3)] == [7, None, None]
    assert kept.decoded() == {}


def test_a_value_is_deleted_when_no_record_can_see_it_any_more():
    whole, kept = partition()
    kept.restore(stored({b"k": b"7"}, {b"k": 1000}, stream_time_ms=1000))
    kept.read(0, 1099)
    kept.read(1, 1100)
    # The record at offset 1 is not done: it sees none, and the one before it did.
    assert kept.over(1, MUCH) == ()
    assert kept.over(2, MUCH) == (b"k",)
    tombstone, position = kept.records_of(OffsetCommit(TopicPartition("t", 0), 2, ""), (b"k",))
    assert (tombstone.key, tombstone.value, tombstone.partition) == (b"k", None, 0)
    assert b'"stream_time_ms":1100' in position.value
    assert whole.keys == 1  # until that is committed
    assert not kept.release(2, (b"k",))
    assert (whole.keys, whole.bytes, kept.values) == (0, 0, {})


def test_what_was_set_meanwhile_is_not_deleted():
    _, kept = partition()
    kept.restore(stored({b"k": b"7", b"other": b"1"}, {b"k": 1000, b"other": 1000}))
    kept.read(0, 1100)
    assert kept.over(1, 1) == (b"k",)
    kept.read(1, 1100)
    kept._take(b"k", b"8", 1100)
    assert kept.release(1, (b"k",))  # another one is over
    assert value_at(kept, 1) == 8
    assert kept.over(1, MUCH) == (b"other",)


def test_what_is_over_and_not_deleted_yet_is_a_reason_for_another_transaction():
    assigned = AssignedPartition(StartPosition(TopicPartition("t", 0), 0, "", "id"), OneToOne())
    _, assigned.state = partition()
    values = {b"a": b"1", b"b": b"2"}
    assigned.state.restore(stored(values, dict.fromkeys(values, 0)))
    record = WorkerRecord("t", 0, 0, b"c", timestamp_ms=100)
    assigned.note_read(ConsumedRecord(record, assigned.partition, 0))
    assigned.finish(0)
    for expected in (True, False):
        commit, cut = assigned.commit_held(MUCH, 4096)
        assigned.release(commit, cut, assigned.state.over(commit.offset, 1))
        assert assigned.is_changed is expected
    assert assigned.state.values == {}


def test_without_a_ttl_nothing_is_over():
    _, kept = partition(ttl=None)
    kept.restore(stored({b"k": b"7"}, {b"k": 0}, stream_time_ms=5))
    kept.read(0, MUCH)
    assert value_at(kept, 0) == 7
    assert kept.over(1, MUCH) == ()
    [position] = kept.records_of(OffsetCommit(TopicPartition("t", 0), 1, "m"), ())
    assert b'"stream_time_ms":1000000' in position.value


def test_a_bench_forgets_what_is_over():
    @worker(
        topic=Topic("t"),
        guarantee=Guarantee.EXACTLY_ONCE,
        state=int,
        state_ttl=timedelta(minutes=1),
    )
    def count(record: WorkerRecord, state: KeyState[int]) -> None:
        state.set(state.get(0) + 1)

    with WorkerBench(count) as bench:
        bench.feed(b"", b"", key="ann")
        bench.advance(MINUTE / 2)
        bench.feed(b"", key="bob")
        bench.advance(MINUTE / 2)
        assert dict(bench.state.items()) == {b"ann": 2, b"bob": 1}  # no record has come since
        bench.feed(b"", key="bob")
        assert dict(bench.state.items()) == {b"bob": 2}
        bench.feed(b"", key="ann")
        assert dict(bench.state.items()) == {b"ann": 1, b"bob": 2}
