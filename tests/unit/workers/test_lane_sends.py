"""What a task sends does not stop its lane, and its record is not done before it is there."""

import asyncio

import pytest
from tests.integration.instances import drill
from tests.unit.workers.lanes import Failures, LaneBench, settled
from tests.unit.workers.test_lanes import TWICE
from tests.unit.workers.users_errors import EmptyError
from tests.waiting import until

from headrace.workers import WorkerTask
from headrace.workers.states import LaneState


class Copying(WorkerTask):
    async def process(self, record):
        self.send("out", (record.offset, record.attempt))


class Observed(WorkerTask):
    async def process(self, record, observer):
        self.send("out", (record.offset, record.attempt))
        observer.on_success()


def values(bench):
    return [one.value for one in bench.sent]


@pytest.mark.parametrize("task", [Copying, Observed])
def test_the_next_record_begins_before_the_last_ones_sends_are_confirmed(task):
    async def run():
        bench = LaneBench(task)
        bench.put(0, 1, 2)
        await until(lambda: values(bench) == [(0, 1), (1, 1), (2, 1)])
        assert (bench.committable, bench.lane.in_process) == (0, 3)
        bench.confirm((1, 1))
        await settled()
        assert bench.committable == 0
        bench.confirm((0, 1), (2, 1))
        await settled()
        assert (bench.committable, bench.lane.in_process) == (3, 0)

    drill(run())


def test_a_lane_has_so_many_unconfirmed_records_and_no_more():
    async def run():
        bench = LaneBench(Copying)
        bench.lane.max_unconfirmed = 2
        bench.put(0, 1, 2)
        await settled()
        assert values(bench) == [(0, 1), (1, 1)]
        bench.confirm((1, 1))
        await until(lambda: values(bench) == [(0, 1), (1, 1), (2, 1)])

    drill(run())


@pytest.mark.parametrize("task", [Copying, Observed])
def test_a_send_that_fails_late_meets_the_policy_before_further_records(task):
    async def run():
        bench = LaneBench(task, on_failure=TWICE)
        bench.put(0, 1)
        await until(lambda: len(bench.sent) == 2)
        bench.confirm((0, 1), error=OSError("not written"))
        bench.put(2)
        await until(lambda: len(bench.sent) == 4)
        assert values(bench)[:2] == [(0, 1), (1, 1)]
        assert sorted(values(bench)[2:]) == [(0, 2), (2, 1)]
        bench.confirm((0, 2), error=OSError("not written"))
        bench.confirm((1, 1), (2, 1))
        await until(lambda: bench.committable == 3)
        assert bench.failures.errors == {0: OSError}
        assert bench.counts["failed"] == 2

    drill(run())


class Twice(WorkerTask):
    async def process(self, record):
        self.send("out", "first")
        self.send("out", "second")


class TwiceObserved(Twice):
    async def process(self, record, observer):
        await super().process(record)
        observer.on_success()


@pytest.mark.parametrize("task", [Twice, TwiceObserved])
def test_of_several_sends_that_fail_the_first_error_counts_also_one_that_is_false(task):
    async def run():
        bench = LaneBench(task)
        bench.put(0)
        await until(lambda: len(bench.sent) == 2)
        bench.confirm("first", error=EmptyError())
        bench.confirm("second", error=OSError("not written"))
        await until(lambda: bench.committable == 1)
        assert bench.failures.errors == {0: EmptyError}

    drill(run())


def test_a_record_whose_sends_failed_is_the_next_one_of_its_lane():
    async def run():
        bench = LaneBench(Copying, on_failure=TWICE)
        bench.put(0, 1)
        await until(lambda: len(bench.sent) == 2)
        bench.confirm((0, 1), (1, 1), error=OSError("not written"))
        bench.put(2)
        await until(lambda: len(bench.sent) == 5)
        assert values(bench)[2:] == [(0, 2), (1, 2), (2, 1)]

    drill(run())


def test_no_record_begins_between_two_late_failures():
    async def run():
        steps = []

        class Telling(Failures):
            async def end(self, attempt, error):
                steps.append(f"policy {attempt.record.offset}")
                return await super().end(attempt, error)

        class Steps(Copying):
            async def process(self, record):
                steps.append(record.offset)
                await super().process(record)

        bench = LaneBench(Steps, failures=Telling())
        bench.put(0, 1)
        await until(lambda: len(bench.sent) == 2)
        bench.put(2)
        bench.confirm((0, 1), (1, 1), error=OSError("not written"))
        await until(lambda: len(steps) == 5)
        assert steps == [0, 1, "policy 0", "policy 1", 2]

    drill(run())


class SlowPolicy(Failures):
    """Ends a record when it is told to."""

    def __init__(self):
        super().__init__()
        self.is_asked, self.may_end = asyncio.Event(), asyncio.Event()

    async def end(self, attempt, error):
        self.is_asked.set()
        await self.may_end.wait()
        return await super().end(attempt, error)


@pytest.mark.parametrize("waiting", [[], [1]])
def test_a_drain_during_the_policy_of_a_late_failure_ends_the_lane_after_it(waiting):
    async def run():
        bench = LaneBench(Copying, failures=SlowPolicy())
        bench.put(0)
        await until(lambda: bench.sent)
        bench.confirm((0, 1), error=OSError("not written"))
        await bench.failures.is_asked.wait()
        bench.put(*waiting)
        revoked = asyncio.create_task(bench.revoke(60))
        await settled()
        bench.failures.may_end.set()
        await settled()
        assert (revoked.done(), values(bench)) == (True, [(0, 1)])
        revoked.cancel()

    drill(run())


@pytest.mark.parametrize("waiting", [[], [0]])
def test_a_drain_during_punctuate_ends_the_lane_after_it(waiting):
    async def run():
        begun, may_end = asyncio.Event(), asyncio.Event()

        class Punctuated(Copying):
            async def punctuate(self, _):
                begun.set()
                await may_end.wait()

        bench = LaneBench(Punctuated)
        await settled()
        bench.lane.punctuate("now")
        await begun.wait()
        bench.put(*waiting)
        revoked = asyncio.create_task(bench.revoke(60))
        await settled()
        may_end.set()
        await settled()
        assert (revoked.done(), values(bench)) == (True, [])
        revoked.cancel()

    drill(run())


def test_a_punctuate_that_falls_due_during_a_policy_is_not_missed():
    async def run():
        called = []

        class Punctuated(Copying):
            async def punctuate(self, now):
                called.append(now)

        bench = LaneBench(Punctuated, failures=SlowPolicy())
        bench.put(0)
        await until(lambda: bench.sent)
        bench.confirm((0, 1), error=OSError("not written"))
        await bench.failures.is_asked.wait()
        bench.lane.punctuate("now")
        bench.failures.may_end.set()
        await settled()
        assert called == ["now"]

    drill(run())


def test_a_drain_waits_for_confirmations():
    async def run():
        bench = LaneBench(Copying)
        bench.put(0, 1)
        await until(lambda: len(bench.sent) == 2)
        revoked = asyncio.create_task(bench.revoke(60))
        await settled()
        assert not revoked.done()
        assert bench.lane.state is LaneState.DRAINING
        bench.confirm((0, 1), (1, 1))
        [commit] = await revoked
        assert commit.offset == 2

    drill(run())


def test_a_drain_ends_without_confirmations_that_do_not_come():
    async def run():
        bench = LaneBench(Copying)
        bench.put(0)
        await until(lambda: bench.sent)
        commits = await bench.revoke()
        assert [one.offset for one in commits] == [0]
        bench.confirm((0, 1))

    drill(run())


@pytest.mark.parametrize("method", ["init", "punctuate", "close"])
def test_a_send_of_no_record_that_fails_ends_the_instance(method):
    async def sending(self, *_):
        self.send("out", method)

    async def run():
        bench = LaneBench(type("Sending", (Copying,), {method: sending}))
        await settled()
        bench.lane.punctuate("now")
        if method == "close":
            bench.begin_drain()
        await until(lambda: values(bench) == [method])
        assert bench.broken == []
        bench.confirm(method, error=OSError("not written"))
        await until(lambda: [type(one) for one in bench.broken] == [OSError])

    drill(run())


def test_what_an_observed_task_raises_after_the_end_is_logged_with_the_record(caplog):
    class Raising(WorkerTask):
        async def process(self, record, observer):
            observer.on_success()
            raise ValueError("after the end")

    async def run():
        bench = LaneBench(Raising)
        bench.put(0)
        await until(lambda: bench.committable == 1)
        await settled()

    drill(run())
    [logged] = caplog.records
    assert "t[0]@0 failed after its task had reported its end" in logged.getMessage()
    assert repr(logged.exc_info[1]) == "ValueError('after the end')"
