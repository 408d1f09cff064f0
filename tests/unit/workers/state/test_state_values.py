"""The state of a key during one attempt, and of a bench."""

import asyncio
from dataclasses import dataclass

import pytest

from headrace.errors import InvalidRecordError, StateTooLargeError, WorkerStateError
from headrace.kafka.group.commits import OffsetCommit
from headrace.kafka.group.start_positions import StartPosition
from headrace.model import Guarantee, Topic, TopicPartition
from headrace.testing import Outcome, WorkerBench
from headrace.workers import (
    KeyHash,
    KeyState,
    Skip,
    Worker,
    WorkerRecord,
    WorkerTask,
    worker,
)
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.state.changelog import (
    POSITION,
    StatePosition,
    StoredValues,
    position_record,
)
from headrace.workers.state.values import PartitionState, WorkerState
from headrace.workers.states import PauseReason
from headrace.workers.tasks.state import StateForm

ONCE = Guarantee.EXACTLY_ONCE


@dataclass
class Visits:
    count: int = 0
    pages: list[str] | None = None


def partition(state=Visits, state_bytes=1000, fail=None):
    declared = Worker("w", Topic("t"), WorkerTask, state=state, state_bytes=state_bytes)
    whole = WorkerState(declared, fail or pytest.fail)
    return whole, PartitionState(whole, 0)


def at(key, kept):
    return kept.of(WorkerRecord("t", 0, 0, key))


def test_what_is_got_is_a_copy():
    _, kept = partition()
    kept.restore(StoredValues({b"k": b'{"count":1,"pages":["/"]}'}))
    state = at(b"k", kept)
    state.get().pages.append("/prices")
    assert state.get() == Visits(1, ["/"])
    assert not state.end()


def test_changes_are_seen_by_the_attempt_alone():
    _, kept = partition()
    state = at(b"k", kept)
    assert (state.get(), state.get(Visits(7))) == (None, Visits(7))
    state.set(Visits(2))
    assert state.get() == Visits(2)
    assert at(b"k", kept).get() is None
    state.delete()
    assert state.get() is None
    assert state.end()


def test_a_deletion_of_nothing_is_no_change():
    _, kept = partition()
    state = at(b"k", kept)
    state.delete()
    assert not state.end()


@pytest.mark.parametrize("value", ["2", Visits("two"), {"count": "x"}, None, float("nan"), b"\xff"])
def test_a_value_that_could_not_be_read_again_is_refused(value):
    _, kept = partition()
    with pytest.raises(TypeError):
        at(b"k", kept).set(value)


def test_a_type_that_is_no_json_is_refused():
    with pytest.raises(TypeError):
        StateForm(complex)


@pytest.mark.parametrize(("key", "reason"), [(None, "no-key"), (POSITION, "reserved-key")])
def test_a_record_without_a_key_of_its_own_has_no_state(key, reason):
    _, kept = partition()
    with pytest.raises(InvalidRecordError) as invalid:
        at(key, kept).get()
    assert invalid.value.reason == reason


def test_the_state_of_a_record_that_has_ended_can_not_be_used():
    _, kept = partition()
    state = at(b"k", kept)
    state.end()
    for use in (state.get, state.delete, lambda: state.set(Visits())):
        with pytest.raises(WorkerStateError, match="after the record was done"):
            use()


def test_keys_and_bytes_are_counted_and_dropped():
    whole, kept = partition(int)
    kept.restore(StoredValues({b"ab": b"12", b"c": b"3"}))
    assert (whole.keys, whole.bytes) == (2, 6)
    kept.restore(StoredValues({b"ab": b"123"}))
    assert (whole.keys, whole.bytes) == (2, 7)
    kept.drop()
    assert (whole.keys, whole.bytes, kept.values) == (0, 0, {})


def test_more_than_is_allowed_is_fatal():
    failures = []
    _, kept = partition(int, state_bytes=5, fail=failures.append)
    kept.restore(StoredValues({b"ab": b"12"}))
    assert failures == []
    kept.restore(StoredValues({b"c": b"3"}))
    assert [type(failure) for failure in failures] == [StateTooLargeError]


def test_nothing_is_committed_of_a_partition_before_its_state_is_there():
    start = StartPosition(TopicPartition("t", 0), 5, "", "id")
    assigned = AssignedPartition(start, KeyHash(1))
    assigned.paused_for.add(PauseReason.RESTORING)
    assigned.reach(9)
    assert assigned.commit_held(1000, 4096) is None
    assert assigned.commit() is None
    assigned.paused_for.clear()
    commit, _ = assigned.commit_held(1000, 4096)
    assert commit.offset == 9


def test_the_position_is_that_of_the_commit():
    commit = OffsetCommit(TopicPartition("t", 3), 7, "metadata", 0)
    record = position_record("headrace.w.state", commit)
    assert (record.topic, record.key, record.partition) == ("headrace.w.state", POSITION, 3)
    stored = StoredValues()
    stored.take(record.key, record.value)
    assert (stored.position, stored.values) == (StatePosition(7, "metadata"), {})
    stored.take(record.key, b"of another program")
    assert stored.position is None


@worker(topic=Topic("t"), partitioner=KeyHash(4), guarantee=ONCE, state=int, on_failure=Skip())
def count(record: WorkerRecord, state: KeyState[int]) -> None:
    state.set(state.get(0) + 1)
    if record.value == b"bad":
        raise LookupError("bad")


def test_a_bench_shows_the_state_of_records_that_are_done():
    with WorkerBench(count) as bench:
        fed = bench.feed(b"1", b"bad", b"2", key="ann") + bench.feed(b"1", key="bob")
        assert [one.outcome for one in fed] == [
            Outcome.PROCESSED,
            Outcome.SKIPPED,
            Outcome.PROCESSED,
            Outcome.PROCESSED,
        ]
        assert dict(bench.state.items()) == {b"ann": 2, b"bob": 1}
        assert bench.sent == []


def test_the_next_record_of_a_lane_waits_until_the_one_before_is_done():
    seen = []

    class Sending(WorkerTask):
        async def process(self, record):
            seen.append(self.state.get(0))
            self.state.set(seen[-1] + 1)
            self.send("out", b"")
            await asyncio.sleep(0)

    declared = Worker("w", Topic("t"), Sending, guarantee=ONCE, state=int, on_failure=Skip())
    with WorkerBench(declared) as bench:
        bench.failing_topics["out"] = OSError("no answer")
        bench.feed(b"1", key="k")
        del bench.failing_topics["out"]
        bench.feed(b"2", b"3", key="k")
    assert seen == [0, 0, 1]


def test_a_direct_call_takes_a_state_of_its_own():
    state = KeyState(3)
    count(WorkerRecord("t", 0, 0, b"k", b""), state)
    assert state.get() == 4
    state.delete()
    assert (state.get(), state.get(0)) == (None, 0)
