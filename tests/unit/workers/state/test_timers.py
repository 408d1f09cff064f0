"""Timers of a key: when they are due, in which order, and what becomes of those that fail."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace.errors import InvalidRecordError, WorkerError, WorkerStateError
from headrace.model import Guarantee, Topic
from headrace.testing import WorkerBench
from headrace.workers import (
    DeadLetters,
    KeyHash,
    KeyState,
    KeyTimers,
    Retry,
    Skip,
    Timer,
    Worker,
    WorkerRecord,
    WorkerTask,
    worker,
)
from headrace.workers.rules import worker_faults
from headrace.workers.state.changelog import TIMERS, StoredValues
from headrace.workers.state.timers import LaneQueues, decoded_times, encoded_times
from headrace.workers.state.values import PartitionState, WorkerState

ONCE = Guarantee.EXACTLY_ONCE
START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MUCH = 10**15


def queues(lanes=1):
    return LaneQueues(lanes, lambda key: key[-1] % lanes)


def test_timers_of_a_lane_are_due_in_the_order_of_their_times():
    timers = queues()
    timers.set(b"a", (20, 40))
    timers.set(b"b", (10, 30))
    assert timers.due(0, 9) is None
    assert timers.due_lanes(9) == []
    order = []
    while (due := timers.due(0, 39)) is not None:
        time, key = due
        order.append(due)
        timers.set(key, tuple(other for other in timers.times[key] if other != time))
    assert order == [(10, b"b"), (20, b"a"), (30, b"b")]
    assert timers.times == {b"a": (40,)}


def test_a_timer_that_was_deleted_is_not_due():
    timers = queues()
    timers.set(b"a", (10, 20))
    timers.set(b"a", (20,))
    assert timers.due(0, MUCH) == (20, b"a")
    timers.set(b"a", ())
    assert (timers.due(0, MUCH), timers.due_lanes(MUCH), timers.times) == (None, [], {})


def test_each_lane_has_its_own_timers():
    timers = queues(lanes=3)
    timers.set(b"\x00", (30,))
    timers.set(b"\x01", (10,))
    assert timers.due_lanes(10) == [1]
    assert timers.due_lanes(30) == [0, 1]
    assert timers.due(2, MUCH) is None
    assert timers.has_due(b"\x01", 10)
    assert not timers.has_due(b"\x00", 29)


def test_a_timer_that_is_moved_with_each_record_takes_no_more_memory():
    timers = queues()
    timers.set(b"other", (5,))
    for time in range(1000, 5000):
        timers.set(b"a", (time,))
    assert len(timers._queues[0]) < 200
    timers.set(b"other", ())
    assert timers.due(0, MUCH) == (4999, b"a")


def test_the_timers_of_a_key_are_a_list_in_the_changelog():
    assert (encoded_times((1, 2)), encoded_times(())) == (b"[1,2]", None)
    assert (decoded_times(b"[1,2]"), decoded_times(None)) == ((1, 2), ())
    stored = StoredValues()
    stored.take(TIMERS + b"k", b"[7]")
    stored.take(b"k", b"1")
    assert (stored.timers, stored.values, len(stored.keys)) == ({b"k": b"[7]"}, {b"k": b"1"}, 2)
    stored.take(TIMERS + b"k", None)
    assert (stored.timers, stored.values) == ({}, {b"k": b"1"})


def test_timers_count_as_bytes_of_the_state():
    declared = Worker("w", Topic("t"), WorkerTask, state=int)
    whole = WorkerState(declared, pytest.fail)
    kept = PartitionState(whole, 0)
    kept.restore(StoredValues({b"k": b"7"}, timers={b"k": b"[7,8]"}))
    assert (whole.keys, whole.bytes) == (1, 2 + len(TIMERS) + len(b"k[7,8]"))
    kept.drop()
    assert (whole.keys, whole.bytes, kept.timers.times) == (0, 0, {})


def test_times_are_rounded_up_and_need_a_zone():
    timers = KeyTimers()
    timers.set(START + timedelta(microseconds=1))
    timers.set(START)
    assert timers.times == (START, START + timedelta(milliseconds=1))
    timers.delete(START)
    assert timers.times == (START + timedelta(milliseconds=1),)
    timers.clear()
    assert timers.times == ()
    for use in (timers.set, timers.delete):
        with pytest.raises(ValueError, match="without a zone"):
            use(datetime(2026, 1, 1))  # noqa: DTZ001


class Session(WorkerTask):
    """Counts records of a key, and sends the count when none has come for a minute."""

    async def process(self, record):
        self.state.set(self.state.get(0) + 1)
        self.timers.clear()
        self.timers.set(EPOCH + timedelta(milliseconds=record.timestamp_ms) + MINUTE)

    async def on_timer(self, timer):
        self.send("sessions", b"%d" % self.state.get(), key=timer.key)
        self.state.delete()


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SESSIONS = Worker("w", Topic("t"), Session, KeyHash(4), guarantee=ONCE, state=int)


def sent(bench):
    return [(record.key, record.value) for record in bench.sent]


def test_a_timer_is_called_when_a_record_of_any_key_brings_its_time():
    with WorkerBench(SESSIONS) as bench:
        bench.feed(b"", b"", key="ann")
        bench.advance(MINUTE)
        assert sent(bench) == []  # the clock alone moves no stream time
        bench.feed(b"", key="bob")
        assert sent(bench) == [(b"ann", b"2")]
        assert dict(bench.state.items()) == {b"bob": 1}


def test_a_timer_comes_before_the_record_of_its_key_that_brings_its_time():
    with WorkerBench(SESSIONS) as bench:
        bench.feed(b"", b"", key="ann")
        bench.advance(2 * MINUTE)
        bench.feed(b"", key="ann")
        assert sent(bench) == [(b"ann", b"2")]
        assert dict(bench.state.items()) == {b"ann": 1}


def failing(failures, **declared):
    """A worker whose timer fails so often, and then sends."""
    calls = []

    class Failing(WorkerTask):
        def process(self, record):
            self.timers.set(START)
            self.state.set(1)

        def on_timer(self, timer):
            calls.append(timer)
            self.state.set(2)
            self.send("out", b"", key=timer.key)
            if len(calls) <= failures:
                raise ConnectionError("no answer")

    made = Worker("w", Topic("t"), Failing, guarantee=ONCE, state=int, **declared)
    return made, calls


def test_timers_wait_while_much_is_held_and_so_do_the_records_of_their_lane():
    called = []

    class Noting(WorkerTask):
        async def process(self, record):
            called.append(record.offset)
            self.timers.set(EPOCH + timedelta(milliseconds=record.timestamp_ms) + MINUTE)

        async def on_timer(self, timer):
            called.append(timer.key)

    with WorkerBench(Worker("w", Topic("t"), Noting, guarantee=ONCE, state=int)) as bench:
        bench.feed(b"", key="ann")
        bench.advance(MINUTE)
        assignments = bench._instance.assignments
        [assigned] = assignments.values()
        assigned.held.bytes = MUCH  # of sends that no transaction has written
        bench.feed(b"", key="ann")
        assert called == [0]
        assignments.release(assigned, *assigned.commit_held(MUCH, 4096))
        bench.advance(timedelta(0))
        assert called == [0, b"ann", 1]


def test_a_timer_that_fails_is_retried_as_a_record_is():
    policy = Retry(attempts=3, first_delay=timedelta(seconds=1))
    declared, calls = failing(2, on_failure=policy)
    with WorkerBench(declared) as bench:
        bench.feed(b"", key="ann")
        assert (len(calls), bench.sent, bench.state["ann"]) == (1, [], 1)
        bench.advance(timedelta(seconds=5))
        assert calls == [Timer(b"ann", START)] * 3
        assert (sent(bench), bench.state["ann"]) == ([(b"ann", b"")], 2)
        bench.feed(b"", key="bob")
        assert len(calls) == 4  # bob's alone


def test_a_timer_that_is_skipped_is_removed_and_changes_nothing():
    declared, calls = failing(1, on_failure=Skip())
    with WorkerBench(declared) as bench:
        bench.feed(b"", key="ann")
        assert (len(calls), bench.sent, bench.state["ann"]) == (1, [], 1)
        bench.feed(b"", key="bob")
        assert [timer.key for timer in calls] == [b"ann", b"bob"]
        assert bench.counts["skipped"] == 1


def test_the_dead_letter_of_a_timer_belongs_to_no_record():
    declared, _ = failing(1, on_failure=DeadLetters())
    with WorkerBench(declared) as bench:
        bench.feed(b"", key="ann")
        [letter] = bench.dead_letters
        assert (letter.offset, letter.key, letter.partition.topic) == (-1, b"ann", "t")
        assert letter.value == b'{"timer_ms":%d}' % ((START - EPOCH) // timedelta(milliseconds=1))
        assert bench.state["ann"] == 1


def test_a_timer_that_fails_ends_the_instance_where_the_policy_is_to_stop():
    declared, _ = failing(1)
    refused = pytest.raises(WorkerError, match="the timer of key b'ann' at 2026-01-01")
    with refused, WorkerBench(declared) as bench:
        bench.feed(b"", key="ann")


def test_a_timer_that_sets_no_later_one_fails():
    class Endless(WorkerTask):
        def process(self, record):
            self.timers.set(START)

        def on_timer(self, timer):
            self.timers.set(timer.time)

    declared = Worker("w", Topic("t"), Endless, guarantee=ONCE, state=int)
    refused = pytest.raises(WorkerError, match="sets one that is not later")
    with refused, WorkerBench(declared) as bench:
        bench.feed(b"", key="ann")


def test_timers_without_on_timer_or_without_a_key_are_refused():
    errors = []

    class Setting(WorkerTask):
        def process(self, record):
            try:
                self.timers.set(START)
            except (WorkerStateError, InvalidRecordError) as error:
                errors.append(error)

    class Called(Setting):
        def on_timer(self, timer):
            """Does nothing."""

    for task, key in ((Setting, "ann"), (Called, None)):
        with WorkerBench(Worker("w", Topic("t"), task, guarantee=ONCE, state=int)) as bench:
            bench.feed(b"", key=key)
    assert [type(error) for error in errors] == [WorkerStateError, InvalidRecordError]


def closes(timer: Timer, state: KeyState[int], timers: KeyTimers, send) -> None:
    assert timers.times == ()
    send("sessions", b"%d" % state.get(0), key=timer.key)
    state.delete()


def declared(function, **options):
    options = {"guarantee": ONCE, "state": int, "on_timer": closes} | options
    return worker(topic=Topic("t"), **options)(function)


def counts(record: WorkerRecord, state: KeyState[int], timers: KeyTimers) -> None:
    state.set(state.get(0) + 1)
    timers.clear()
    timers.set(EPOCH + timedelta(milliseconds=record.timestamp_ms) + MINUTE)


def test_a_function_has_another_one_for_timers():
    with WorkerBench(declared(counts)) as bench:
        bench.feed(b"", b"", key="ann")
        bench.advance(MINUTE)
        bench.feed(b"", key="bob")
        assert sent(bench) == [(b"ann", b"2")]


def test_a_direct_call_takes_timers_of_its_own():
    state, timers = KeyState(1), KeyTimers([START])
    declared(counts)(WorkerRecord("t", 0, 0, b"k", b"", (), 0), state, timers)
    assert (state.get(), timers.times) == (2, (EPOCH + MINUTE,))


def faults(declared):
    return [fault.message for fault in worker_faults(declared)]


def test_what_sets_or_takes_no_timers_is_refused():
    def takes_none() -> None:
        """Does nothing."""

    def takes_record(timer: Timer, record: WorkerRecord) -> None:
        """Does nothing."""

    def takes_other(timer: Timer, clock) -> None:
        """Does nothing."""

    assert faults(declared(counts)) == []
    assert any(
        "takes timers without on_timer" in m for m in faults(declared(counts, on_timer=None))
    )
    assert any(
        "takes_none takes no timer" in m for m in faults(declared(counts, on_timer=takes_none))
    )
    assert any("takes record" in m for m in faults(declared(counts, on_timer=takes_record)))
    assert any("takes clock" in m for m in faults(declared(counts, on_timer=takes_other)))
    assert any("has on_timer, and no state" in m for m in faults(Worker("w", Topic("t"), Session)))
    reference = {"timers": Topic("r", compaction=True)}
    assert any("reference 'timers'" in m for m in faults(declared(counts, references=reference)))
