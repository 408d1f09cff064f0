"""Tasks in processes: what passes between them and the instance."""

import asyncio
import contextlib
import math
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
from tests.integration.instances import drill
from tests.unit.workers.lanes import LaneBench
from tests.unit.workers.users_errors import ERRORS
from tests.waiting import LIMIT_SECONDS, until

from headrace.errors import TaskProcessError, TaskProcessesEndedError
from headrace.model import TopicPartition
from headrace.workers import WorkerTask
from headrace.workers.lanes import processes
from headrace.workers.lanes.processes import TaskProcess, TaskProcesses
from headrace.workers.timing import WorkerTiming

LARGE = 4 * 1024 * 1024


class AwkwardError(Exception):
    """Comes out of a pickle only as one argument, and was made of two."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class Answering(WorkerTask):
    def init(self, subpartition, config):
        self.lane = subpartition

    def process(self, record):
        if record == "awkward":
            raise AwkwardError("this", "that")
        if record == "bad":
            raise ValueError(record)
        if record == "die":
            os._exit(1)
        self.send("out", record, key=b"%d %d" % (self.lane, os.getpid()))


async def opened(processes, lane):
    sent = []
    task = processes.task()
    task.send = lambda topic, value, *, key, headers, partition: sent.append((key, value))
    await task.init(lane, {})
    return task, sent


async def run(check, broken=None, timing=WorkerTiming(), make=Answering):
    broken = [] if broken is None else broken
    processes = TaskProcesses(make, 2, broken.append, timing)
    try:
        await check(processes)
    finally:
        processes.close()


def test_answers_are_those_of_the_requests_however_large_they_are():
    async def check(processes):
        tasks = [await opened(processes, lane) for lane in range(4)]
        records = [b"%d" % number * (LARGE if number == 5 else 1) for number in range(20)]
        await asyncio.gather(*(task.process(one) for one in records for task, _ in tasks))
        pids = [{key.split()[1] for key, _ in sent} for _, sent in tasks]
        assert pids[0] == pids[2] != pids[1] == pids[3]
        assert all(len(one) == 1 for one in pids)
        for lane, (_, sent) in enumerate(tasks):
            assert sorted(value for _, value in sent) == sorted(records)
            assert {key.split()[0] for key, _ in sent} == {b"%d" % lane}

    asyncio.run(run(check))


def test_what_a_task_raises_is_raised_with_where_it_was():
    async def check(processes):
        task, _ = await opened(processes, 0)
        with pytest.raises(ValueError, match="bad") as raised:
            await task.process("bad")
        assert "in process" in raised.value.__notes__[0]
        with pytest.raises(RuntimeError, match="AwkwardError: this and that"):
            await task.process("awkward")
        await task.process(b"goes on")

    asyncio.run(run(check))


def test_an_answer_that_nobody_waits_for_is_not_taken_for_another():
    async def check(processes):
        task, sent = await opened(processes, 0)
        first = asyncio.create_task(task.process(b"first"))
        await asyncio.sleep(0)
        first.cancel()
        await task.process(b"second")
        assert [value for _, value in sent] == [b"second"]

    asyncio.run(run(check))


def test_a_signal_to_the_whole_group_is_the_instances_to_hear():
    async def check(processes):
        task, sent = await opened(processes, 0)
        await task.process(b"before")
        [(key, _)] = sent
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(int(key.split()[1]), number)
        await task.process(b"after")
        assert sent[1:] == [(key, b"after")]

    asyncio.run(run(check))


def test_a_process_that_ends_fails_the_call_it_was_at_and_another_takes_its_place():
    async def check(processes):
        task, sent = await opened(processes, 0)
        other, _ = await opened(processes, 1)
        neighbour, beside = await opened(processes, 2)
        await task.process(b"before")
        asked = [task.process("die"), task.process(b"after it"), neighbour.process(b"beside")]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in found] == [TaskProcessError, type(None), type(None)]
        assert "ended by itself: exit code 1" in str(found[0])
        await other.process(b"elsewhere")
        pids = [key.split()[1] for key, _ in sent + beside]
        assert pids[0] != pids[1] == pids[2]
        assert [key.split()[0] for key, _ in sent] == [b"0", b"0"], "its init was called again"
        await task.close()

    asyncio.run(run(check))


def test_a_process_that_ends_again_and_again_ends_the_instance(monkeypatch):
    monkeypatch.setattr(TaskProcess, "max_ends_in_a_row", 2)
    broken = []

    async def check(processes):
        task, _ = await opened(processes, 0)
        for _ in range(2):
            assert broken == []
            with pytest.raises(TaskProcessError):
                await task.process("die")
        assert [type(one) for one in broken] == [TaskProcessError]
        with pytest.raises(TaskProcessesEndedError):
            await asyncio.wait_for(task.process(b"after it"), LIMIT_SECONDS)
        with pytest.raises(TaskProcessesEndedError):
            await asyncio.wait_for(task.close(), LIMIT_SECONDS)

    asyncio.run(run(check, broken))


def test_a_call_that_is_given_up_before_it_is_begun_is_not_made():
    async def check(processes):
        task, sent = await opened(processes, 0)
        calls = [asyncio.create_task(task.process(one)) for one in (b"first", b"second", b"third")]
        await asyncio.sleep(0)
        calls[1].cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert [value for _, value in sent] == [b"first", b"third"]
        assert calls[1].cancelled()

    asyncio.run(run(check))


def test_they_may_be_closed_before_they_are_used():
    async def check(processes):
        processes.task()

    asyncio.run(run(check))


def never_ready(channel):
    time.sleep(3600)


def test_a_process_that_does_not_get_ready_is_replaced(monkeypatch):
    monkeypatch.setattr(processes, "serve", never_ready)
    monkeypatch.setattr(TaskProcess, "max_ends_in_a_row", 2)
    broken = []

    async def check(processes):
        with pytest.raises(TaskProcessesEndedError):
            await asyncio.wait_for(opened(processes, 1), LIMIT_SECONDS)

    asyncio.run(run(check, broken, WorkerTiming(process_start_seconds=0.01)))
    assert {type(error) for error in broken} == {TaskProcessError}


# -- whatever a task raises -----------------------------------------------------------------------


class Raising(WorkerTask):
    """Raises the error whose number is the record's offset."""

    def process(self, record):
        make = ERRORS[record.offset]
        raise make()


def test_an_error_of_any_kind_is_the_records_failure_and_its_process_goes_on(caplog):
    async def run():
        processes = TaskProcesses(Raising, 1, pytest.fail)
        try:
            bench = LaneBench(processes.task)
            bench.put(*range(len(ERRORS)))
            await until(lambda: bench.committable == len(ERRORS))
            assert bench.failures.errors.keys() == set(range(len(ERRORS)))
            assert TaskProcessError not in bench.failures.errors.values()
            assert bench.broken == []
        finally:
            processes.close()

    drill(run())
    assert "starting another one" not in caplog.text


class Unpassable(WorkerTask):
    """Raises what no future or pickle passes on."""

    def process(self, record):
        if record == "exhausted":
            raise StopIteration
        if record == "elsewhere":
            module = sys.modules["elsewhere"] = types.ModuleType("elsewhere")
            module.OwnError = type("OwnError", (Exception,), {"__module__": "elsewhere"})
            raise module.OwnError
        if record == "changing":
            raise ChangingError
        self.send("out", b"", key=b"0 %d" % os.getpid())


class ChangingError(Exception):
    """Comes out of a pickle as an answer."""

    def __reduce__(self):
        return list, ()


@pytest.mark.parametrize("record", ["exhausted", "elsewhere", "changing"])
def test_an_error_that_cannot_be_passed_on_is_one_with_its_text(record):
    async def check(processes):
        task, sent = await opened(processes, 0)
        await task.process(b"before")
        with pytest.raises(RuntimeError, match=r"StopIteration|elsewhere|ChangingError"):
            await task.process(record)
        await task.process(b"after")
        assert sent[0] == sent[1], "it is the same process"

    asyncio.run(run(check, make=Unpassable))


# -- a call that was given up ----------------------------------------------------------------------


class Hanging(WorkerTask):
    """Never returns in partition 0."""

    def process(self, record):
        while record.partition == 0:
            time.sleep(1)


def test_a_call_that_hangs_when_its_partition_is_revoked_does_not_stop_other_lanes(caplog):
    async def run():
        processes = TaskProcesses(Hanging, 1, pytest.fail, WorkerTiming(hanging_seconds=0))
        try:
            bench = LaneBench(processes.task)
            bench.assign(1)
            bench.put(0)
            await until(lambda: bench.lane.begun not in (None, math.inf))
            bench.put(0, partition=1)
            await bench.revoke()
            await until(lambda: bench.assignments[TopicPartition("t", 1)].committable == 1)
            assert bench.broken == []
            assert bench.failures.errors == {}
        finally:
            processes.close()

    drill(run())
    assert "process of a task at t[0]@0 goes on 0 s after it was given up" in caplog.text


# -- what a task starts ---------------------------------------------------------------------------


def sockets():
    """Returns the sockets that this process has, by their numbers."""
    found = {}
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was of the listing
            name = str(file.readlink())
            if name.startswith("socket:"):
                found[int(file.name)] = name
    return found


class Starting(WorkerTask):
    """Starts processes."""

    def process(self, record):
        if record == "own":
            self.send("out", " ".join(sockets().values()).encode())
        elif record == "forked":
            self.send("out", forked(sockets))
        elif record == "executed":
            self.send(
                "out", subprocess.check_output("ls -l /proc/self/fd", close_fds=False, shell=True)
            )
        elif record.startswith("/"):
            child = subprocess.Popen(["sleep", "3600"], pass_fds=list(sockets()))
            Path(record).write_text(str(child.pid))
            os.kill(os.getpid(), signal.SIGKILL)


def forked(function):
    """Returns what ``function`` returns in a process that is forked, as text."""
    reader, writer = os.pipe()
    if not os.fork():
        os.write(writer, str(function()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as written:
        return written.read()


def test_what_a_task_starts_does_not_hold_the_channel_of_its_process():
    async def check(processes):
        task = processes.task()
        answers = []
        task.send = lambda topic, value, **_: answers.append(value.decode())
        await task.init(0, {})
        for record in ("own", "forked", "executed"):
            await task.process(record)
        own, *others = answers
        assert own
        assert not [name for name in own.split() for answer in others if name in answer]

    asyncio.run(run(check, make=Starting))


def test_the_end_of_a_process_is_noticed_while_what_it_started_holds_its_channel(tmp_path):
    file = tmp_path / "pid"

    async def check(processes):
        task, _ = await opened(processes, 0)
        call = asyncio.wait_for(task.process(str(file)), LIMIT_SECONDS)
        with pytest.raises(TaskProcessError, match="signal 9"):
            await call
        await task.process("next")

    try:
        asyncio.run(run(check, make=Starting))
    finally:
        os.kill(int(file.read_text()), signal.SIGKILL)
