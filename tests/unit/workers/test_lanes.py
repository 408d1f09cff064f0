"""Whatever a task does, its lane goes on, or ends the instance with a reason."""

import asyncio
import threading
import time
from datetime import timedelta

import pytest
from tests.integration.instances import drill
from tests.unit.workers.lanes import LaneBench, settled
from tests.unit.workers.users_errors import EmptyError, OwnBaseError, misplaced
from tests.waiting import LIMIT_SECONDS, until

from headrace.errors import (
    LaneEndedError,
    ProcessingFailedError,
    ProcessingTimeoutError,
    SubpartitionError,
    TaskTimeoutError,
)
from headrace.workers import BatchWorkerTask, Retry, RoundRobin, Skip, WorkerTask
from headrace.workers.lanes import blocked, lane
from headrace.workers.states import LaneState
from headrace.workers.tasks.policy import RetryTopics
from headrace.workers.timing import WorkerTiming

TWICE = Retry(attempts=2, first_delay=timedelta(0), then=Skip())


def raising(error, *, at=1):
    class Raising(WorkerTask):
        async def process(self, record):
            if record.offset == at:
                raise error

    return Raising


class Awaiting(WorkerTask):
    """Awaits what somebody else cancels."""

    async def process(self, record):
        if record.offset == 1:
            other = asyncio.create_task(asyncio.sleep(3600))
            other.cancel()
            await other


class Exhausted(WorkerTask):
    def process(self, record):
        if record.offset == 1:
            next(iter([]))


class Unaccepting(WorkerTask):
    def accept(self, record):
        if record.offset == 1:
            raise KeyError("no such field")
        return True

    async def process(self, record):
        pass


class NotAnError(WorkerTask):
    async def process(self, record, observer):
        if record.offset == 1:
            observer.on_failure(None)
        observer.on_success()


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (Awaiting, asyncio.CancelledError),
        (raising(asyncio.CancelledError()), asyncio.CancelledError),
        (raising(BaseExceptionGroup("all", [asyncio.CancelledError()])), BaseExceptionGroup),
        (raising(GeneratorExit()), GeneratorExit),
        (raising(ProcessingFailedError("the user's own")), ProcessingFailedError),
        (Exhausted, RuntimeError),
        (Unaccepting, KeyError),
        (NotAnError, TypeError),
    ],
)
def test_what_a_task_raises_is_the_records_failure_and_its_lane_goes_on(task, expected):
    async def run():
        bench = LaneBench(task)
        bench.put(*range(4))
        await until(lambda: bench.committable == 4)
        assert bench.failures.errors == {1: expected}
        assert bench.broken == []
        assert bench.lane.state is LaneState.RUNNING

    drill(run())


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_what_ends_a_program_ends_the_instance_and_names_the_record(error):
    async def run():
        bench = LaneBench(raising(error))
        bench.put(0, 1)
        await until(lambda: bench.broken)
        [broken] = bench.broken
        assert "t[0]@1 raised" in str(broken)
        assert broken.__cause__ is error
        assert (bench.committable, bench.failures.ended) == (1, [])

    drill(run())


def test_a_lane_whose_coroutine_is_closed_by_the_loop_fails_no_record():
    class Endless(WorkerTask):
        async def process(self, record):
            await asyncio.Event().wait()

    async def run():
        bench = LaneBench(Endless)
        bench.put(0)
        await settled()
        bench.lane._coroutine.close()
        await settled()
        assert bench.failures.ended == []

    drill(run())


@pytest.mark.parametrize("method", ["init", "punctuate", "close"])
@pytest.mark.parametrize("error", [OwnBaseError, GeneratorExit, SystemExit])
def test_what_is_no_record_and_raises_anything_ends_the_instance_by_name(method, error):
    async def fail(*_):
        raise error

    async def run():
        task = type("Failing", (raising(None, at=-1),), {method: fail})
        bench = LaneBench(task)
        await settled()
        bench.lane.punctuate("now")
        if method == "close":
            bench.begin_drain()
        await until(lambda: bench.broken)
        assert isinstance(bench.broken[0], ProcessingFailedError)
        assert f"{method} of subpartition t[0].0 raised" in str(bench.broken[0])
        assert error.__name__ in str(bench.broken[0])

    drill(run())


def test_a_lane_that_is_cancelled_by_others_ends_the_instance():
    async def run():
        bench = LaneBench(raising(None, at=-1))
        await settled()
        bench.lane._runner.cancel()
        await settled()
        assert [type(one) for one in bench.broken] == [LaneEndedError]
        assert bench.lane.state is LaneState.FAILED

    drill(run())


def test_a_partitioner_that_raises_or_is_wrong_fails_the_record():
    class Wrong(RoundRobin):
        def subpartition(self, record):
            if record.offset >= 7:
                raise [
                    asyncio.CancelledError,
                    GeneratorExit,
                    OwnBaseError,
                    EmptyError,
                    misplaced(),
                ][record.offset - 7]
            return {1: -1, 2: 9, 3: "x", 6: 0.5}.get(record.offset, 1 // (record.offset - 4))

    async def run():
        bench = LaneBench(raising(None, at=-1), partitioner=Wrong(2))
        bench.put(*range(1, 12))
        await until(lambda: len(bench.failures.ended) == 10)
        assert {error.reason for _, error in bench.failures.ended} == {"partitioner-failed"}
        await until(lambda: bench.committable == 12)

    drill(run())


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_what_ends_a_program_ends_the_instance_from_the_partitioner_too(error):
    class Ending(RoundRobin):
        def subpartition(self, record):
            raise error

    async def run():
        bench = LaneBench(raising(None, at=-1), partitioner=Ending(2))
        with pytest.raises(ProcessingFailedError, match=r"raised \w+(: 3)? at t\[0\]@1"):
            bench.put(1)
        assert bench.committable == 1

    drill(run())


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, OwnBaseError, asyncio.CancelledError])
def test_lanes_that_cannot_be_made_end_the_instance_with_a_reason(error):
    class Uncounted(RoundRobin):
        def count(self, partition):
            raise error

    async def run():
        with pytest.raises(SubpartitionError, match=rf"tasks of t\[0\]: .*{error.__name__}"):
            LaneBench(raising(None, at=-1), partitioner=Uncounted(2))

    drill(run())


def test_accept_is_asked_again_before_each_further_attempt():
    asked = []

    class Moody(WorkerTask):
        def accept(self, record):
            asked.append((record.offset, record.attempt))
            if len(asked) == 1:
                raise OSError("away")
            return True

        async def process(self, record):
            pass

    async def run():
        bench = LaneBench(Moody, on_failure=TWICE)
        bench.put(0, 1)
        await until(lambda: bench.committable == 2)
        assert asked == [(0, 1), (0, 2), (1, 1)]
        assert bench.failures.ended == []

    drill(run())


# -- deadlines ------------------------------------------------------------------------------------


def test_a_call_that_waits_for_a_thread_is_not_in_process_and_does_not_time_out():
    begun, may_end = [], threading.Event()

    class Slow(WorkerTask):
        def process(self, record):
            begun.append(record.offset)
            may_end.wait(LIMIT_SECONDS)

    async def run():
        bench = LaneBench(Slow, threads=1, partitioner=RoundRobin(3))
        bench.put(0, 1, 2)
        await until(lambda: begun)
        first, *others = sorted(bench.assignments.lanes, key=lambda lane: lane.oldest_start or 1e9)
        for one in others:
            one.expire(1e18)
        await settled()
        assert bench.failures.ended == bench.broken == []
        await bench.revoke()
        may_end.set()
        await until(lambda: bench.threads.all_hang(0) == [])
        return first

    drill(run())
    assert len(begun) == 1, "a call that was not taken is cancelled"


def test_what_is_reported_of_a_partition_that_was_lost_meanwhile_is_ignored():
    """As by an instance that was frozen beyond its session, also where the partition came back."""
    observers = []

    class Observed(WorkerTask):
        async def process(self, record, observer):
            observers.append(observer)

    async def run():
        bench = LaneBench(Observed)
        bench.put(0)
        await until(lambda: observers)
        assert [commit.offset for commit in await bench.revoke()] == [0]
        bench.assign(0)
        bench.put(0)
        await until(lambda: len(observers) == 2)
        observers[0].on_success()
        await settled()
        assert bench.committable == 0
        observers[1].on_success()
        await until(lambda: bench.committable == 1)
        await bench.revoke()

    drill(run())


def test_a_lost_thread_of_an_observed_task_has_nothing_beside_it_and_ends_the_instance():
    begun, may_end = [], threading.Event()

    class Hanging(WorkerTask):
        def process(self, record, observer):
            begun.append((record.offset, record.attempt))
            may_end.wait(LIMIT_SECONDS)

    async def run():
        bench = LaneBench(Hanging, on_failure=TWICE)
        bench.put(0, 1)
        await until(lambda: begun)
        bench.expire()
        await until(lambda: bench.broken)
        assert bench.failures.errors == {0: ProcessingTimeoutError}
        assert isinstance(bench.broken[0], ProcessingTimeoutError)
        may_end.set()

    drill(run())
    assert begun == [(0, 1)]


def test_a_coroutine_that_timed_out_is_cancelled_once_and_may_clean_up():
    cleaned, may_end = [], asyncio.Event()

    class Cleaning(WorkerTask):
        async def process(self, record):
            try:
                await asyncio.sleep(3600)
            finally:
                await may_end.wait()
                cleaned.append(record.offset)

    async def run():
        bench = LaneBench(Cleaning)
        bench.put(0)
        await settled()
        for _ in range(3):
            bench.expire()
            await settled()
        may_end.set()
        await until(lambda: bench.committable == 1)
        assert bench.failures.errors == {0: ProcessingTimeoutError}
        assert bench.lane._runner.cancelling() == 0

    drill(run())
    assert cleaned == [0]


@pytest.fixture
def stubborn():
    """A task that swallows its cancellation, until the test ends."""

    class Stubborn(WorkerTask):
        may_end = False

        async def process(self, record):
            while not self.may_end:
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    continue

    return Stubborn


def test_a_coroutine_that_swallows_its_cancellation_is_given_up_and_ends_the_instance(
    stubborn, caplog
):
    async def run():
        bench = LaneBench(stubborn, timing=WorkerTiming(grace_seconds=0))
        bench.put(0)
        await settled()
        bench.expire()
        await asyncio.sleep(0.001)
        bench.expire()
        await until(lambda: bench.broken)
        assert bench.failures.errors == {0: ProcessingTimeoutError}
        assert bench.committable == 1
        stubborn.may_end = True

    drill(run())
    assert "test_lanes.py" in caplog.text
    assert "in process" in caplog.text


def test_a_rebalance_does_not_wait_for_a_coroutine_that_swallows_its_cancellation(stubborn, caplog):
    async def run():
        bench = LaneBench(stubborn, timing=WorkerTiming(grace_seconds=0))
        bench.put(0)
        await settled()
        assert [one.offset for one in await bench.revoke()] == [0]
        stubborn.may_end = True

    drill(run())
    assert "subpartition t[0].0 does not end" in caplog.text


@pytest.mark.parametrize("is_observed", [False, True])
def test_what_a_drain_has_abandoned_is_not_waited_for_when_the_group_is_left(
    stubborn, caplog, is_observed
):
    class Observed(stubborn):
        async def process(self, record, observer):
            observer.on_success()
            await super().process(record)

    async def run():
        task = Observed if is_observed else stubborn
        bench = LaneBench(task, timing=WorkerTiming(grace_seconds=0))
        bench.put(0)
        await settled()
        try:
            await bench.assignments.drain(0)
            await bench.revoke(3_600)  # which it would wait for
        finally:
            stubborn.may_end = True

    drill(run())
    assert caplog.text.count("subpartition t[0].0 does not end") == 1


@pytest.mark.parametrize("method", ["init", "punctuate", "close"])
def test_what_is_no_record_has_a_deadline_that_names_the_subpartition(method):
    async def endless(*_):
        await asyncio.sleep(3600)

    async def run():
        timing = WorkerTiming(close_seconds=0, init_seconds=0)
        task = type("Hanging", (raising(None, at=-1),), {method: endless})
        bench = LaneBench(task, timing=timing)
        await settled()
        bench.lane.punctuate("now")
        if method == "close":
            bench.begin_drain()
        await settled()
        bench.expire()
        await until(lambda: bench.broken)
        assert isinstance(bench.broken[0], TaskTimeoutError)
        assert f"{method} of subpartition t[0].0 did not end within" in str(bench.broken[0])

    drill(run())


def test_an_init_has_a_minute_whatever_a_record_has():
    class Opening(WorkerTask):
        async def init(self, subpartition, config):
            await may_open.wait()

        async def process(self, record):
            pass

    async def run():
        bench = LaneBench(Opening)
        bench.put(0)
        await settled()
        bench.expire()
        await settled()
        may_open.set()
        await until(lambda: bench.committable == 1)
        assert bench.broken == []

    may_open = asyncio.Event()
    drill(run())


def test_close_may_fail_where_init_did_not_end():
    class Opening(WorkerTask):
        async def init(self, subpartition, config):
            await asyncio.sleep(3600)
            self.session = object()

        async def process(self, record):
            pass

        async def close(self):
            self.session.aclose()

    async def run():
        bench = LaneBench(Opening)
        await settled()
        await bench.revoke()
        assert bench.broken == []

    drill(run())


def test_retries_without_a_delay_see_a_drain():
    attempts = []

    class Failing(WorkerTask):
        async def process(self, record):
            attempts.append(record.attempt)
            if len(attempts) == 3:
                bench.begin_drain()
            raise OSError("away")

    async def run():
        nonlocal bench
        bench = LaneBench(Failing, on_failure=Retry(attempts=100, first_delay=timedelta(0)))
        bench.put(0)
        await until(lambda: bench.lane.state is LaneState.DRAINING)
        await bench.revoke(60)

    bench = None
    drill(run())
    assert attempts == [1, 2, 3]


def test_threads_that_all_hang_are_told_by_name():
    begun, may_end = [], threading.Event()

    class Hanging(WorkerTask):
        def process(self, record):
            begun.append(record.offset)
            may_end.wait(LIMIT_SECONDS)

    async def run():
        bench = LaneBench(Hanging, threads=2, partitioner=RoundRobin(2))
        bench.put(0, 1)
        await until(lambda: len(begun) == 2)
        assert bench.threads.all_hang(0) == []
        await bench.revoke()
        assert len(bench.threads.all_hang(0)) == 2
        assert all("Hanging.process" in one for one in bench.threads.all_hang(0))
        assert bench.threads.all_hang(3600) == []
        may_end.set()
        await until(lambda: bench.threads.all_hang(0) == [])

    drill(run())


# -- records that wait ----------------------------------------------------------------------------


def test_a_batch_ends_where_a_record_is_not_due_or_not_accepted():
    batches = []

    class Batches(BatchWorkerTask):
        def accept(self, record):
            return record.offset != 5

        async def process_batch(self, records):
            batches.append(records.column("offset").to_pylist())

    async def run():
        bench = LaneBench(Batches, on_failure=RetryTopics())
        bench.put(0, 1)
        bench.put(2, due_ms=10**15)
        await until(lambda: bench.committable == 2)
        bench.assign(1)
        bench.put(3, 4, 5, 6, partition=1)
        await until(lambda: len(batches) == 2)
        await settled()

    drill(run())
    assert batches == [[0, 1], [3, 4]]


def test_records_of_a_failed_batch_are_tried_alone_and_in_order():
    batches = []

    class Picky(BatchWorkerTask):
        async def process_batch(self, records):
            offsets = records.column("offset").to_pylist()
            batches.append(offsets)
            if 1 in offsets:
                raise ValueError("bad")

    async def run():
        bench = LaneBench(Picky, on_failure=TWICE)
        bench.put(0, 1, 2)
        await until(lambda: bench.committable == 3)
        bench.put(3, 4)
        await until(lambda: bench.committable == 5)
        assert bench.failures.errors == {1: ValueError}

    drill(run())
    assert batches == [[0, 1, 2], [0], [1], [1], [2], [3, 4]]


def test_what_a_failed_batch_sent_is_not_of_the_record_that_is_tried_alone_first():
    class Sending(BatchWorkerTask):
        async def process_batch(self, records):
            self.send("out", tuple(records.column("offset").to_pylist()))

    async def run():
        bench = LaneBench(Sending)
        bench.put(0, 1)
        await until(lambda: bench.sent)
        [batch] = bench.sent
        batch.confirmation.end(OSError("not written"))
        await until(lambda: len(bench.sent) == 3)
        bench.confirm((0,), (1,))
        await until(lambda: bench.committable == 2)
        assert bench.failures.errors == {}

    drill(run())


def test_the_deadline_of_a_batch_is_not_that_of_the_record_that_is_tried_alone_first():
    async def run():
        may_end, alone = asyncio.Event(), []

        class Slow(BatchWorkerTask):
            async def process_batch(self, records):
                if records.num_rows > 1:
                    await asyncio.Event().wait()
                alone.append(records)
                await may_end.wait()

        bench = LaneBench(Slow)
        bench.put(0, 1)
        await until(lambda: bench.lane.in_process == 2)
        bench.expire()
        await until(lambda: alone)
        may_end.set()
        await until(lambda: bench.committable == 2)
        assert bench.failures.errors == {}

    drill(run())


@pytest.fixture
def asked(monkeypatch):
    """How often a lane was asked again."""
    lanes = []
    ask = lane.Lane.recheck

    def counting(one):
        lanes.append(one)
        ask(one)

    monkeypatch.setattr(lane.Lane, "recheck", counting)
    return lanes


def test_lanes_that_wait_for_a_due_time_are_not_asked_for_every_record(asked):
    async def run():
        bench = LaneBench(raising(None, at=-1), partitioner=RoundRobin(64))
        bench.put(*range(64), due_ms=10**15)
        await settled()
        bench.assign(1)
        for offset in range(20):
            bench.put(offset, partition=1)
            await settled()

    drill(run())
    assert asked == []


def test_lanes_that_do_not_accept_are_asked_at_a_bounded_rate(asked, monkeypatch):
    monkeypatch.setattr(blocked, "RECHECK_SECONDS", 3600)

    class Refusing(WorkerTask):
        def accept(self, record):
            return False

    async def run():
        bench = LaneBench(Refusing, partitioner=RoundRobin(8))
        bench.put(*range(8))
        await settled()
        del asked[:]
        for offset in range(8, 28):
            bench.put(offset)
            await settled()

    drill(run())
    assert len(asked) <= 8


def test_a_due_record_begins_without_anything_else():
    async def run():
        bench = LaneBench(raising(None, at=-1))
        now_ms = time.time_ns() // 1_000_000
        bench.put(0, due_ms=now_ms + 50)
        bench.put(1, due_ms=now_ms + 60)
        await until(lambda: bench.committable == 2)

    drill(run())


def test_an_observed_record_is_not_tried_again_while_its_partition_is_paused():
    begun = []

    class Failing(WorkerTask):
        async def process(self, record, observer):
            begun.append(record.attempt)
            if record.attempt == 1:
                bench.lane.pause(paused=True)
                observer.on_failure(OSError("away"))
            else:
                observer.on_success()

    async def run():
        nonlocal bench
        bench = LaneBench(Failing, on_failure=TWICE)
        bench.put(0)
        await until(lambda: bench.lane.waiting == 1)
        await settled()
        assert begun == [1]
        bench.lane.pause(paused=False)
        await until(lambda: bench.committable == 1)

    bench = None
    drill(run())
    assert begun == [1, 2]
