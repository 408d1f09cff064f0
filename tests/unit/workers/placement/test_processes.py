"""Processes under one parent: started again, shown as one, stopped together."""

import multiprocessing
import os
import signal
import time

import pytest
from tests.waiting import LIMIT_SECONDS

from headrace.errors import PlacedRunError
from headrace.service.run import RunOptions
from headrace.service.status import State, StatusFolder
from headrace.settings import load_settings
from headrace.workers.placement.processes import (
    STOP,
    ChildFailure,
    WorkerProcesses,
)
from headrace.workers.status import WorkerStatus


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "headrace.toml").write_text(
        '[project]\nname = "ads"\nmodules = ["flow"]\n'
        "[restart]\nbudget = 2\nfirst_delay_seconds = 0.01\n"
    )
    return load_settings(tmp_path, {})


def tell(connection, number, processed, state=State.RUNNING):
    name = f"host-{os.getpid()}"
    told = WorkerStatus("enrich", state, instance=name, processed=processed, partitions=number + 1)
    connection.send(told)


def obedient(connection, number):
    tell(connection, number, 10)
    assert connection.recv() == STOP
    tell(connection, number, 11, State.CLOSED)


def failing(connection, number):
    connection.send(ChildFailure("enrich-1: clicks[0]@7 failed", is_permanent=True))
    raise SystemExit(1)


def killed(connection, number):
    tell(connection, number, 5)
    os.kill(os.getpid(), signal.SIGKILL)


def stubborn(connection, number):
    connection.recv()
    connection.send(ChildFailure("the last commit was not confirmed", is_permanent=False))
    raise SystemExit(1)


class Run:
    """Processes that do what ``bodies`` say: the last of a list from then on."""

    def __init__(self, settings, *bodies):
        self.bodies, self.started, self.shown = bodies, [], []
        self.processes = WorkerProcesses(settings, "enrich", len(bodies), RunOptions(), self.start)

    def start(self, number):
        lives = sum(each == number for each in self.started)
        body = self.bodies[number]
        self.started.append(number)
        context = multiprocessing.get_context("fork")  # these bodies hold no client of Kafka
        here, there = context.Pipe()
        target = body[min(lives, len(body) - 1)]
        process = context.Process(target=target, args=(there, number))
        process.start()
        there.close()
        return process, here

    def until(self, condition):
        """Runs, and stops when ``condition`` holds of what is shown."""
        deadline = time.monotonic() + LIMIT_SECONDS

        def observe(shown):
            self.shown.append(shown)
            if condition(self) or time.monotonic() > deadline:
                self.processes.stop()

        self.processes.run(observe)
        assert time.monotonic() < deadline
        return self


def test_processes_are_shown_as_one_and_stopped_together(settings):
    run = Run(settings, [obedient], [obedient]).until(lambda run: run.shown[-1].processed == 20)
    assert "2 of 2 processes" in {one.instance for one in run.shown}
    last = run.shown[-1]
    assert (last.state, last.processed, last.instance) == ("closed", 22, "0 of 2 processes")


def test_one_that_is_killed_is_started_again_and_its_end_is_in_the_status(settings):
    run = Run(settings, [obedient], [killed, obedient])
    run.until(lambda run: run.shown[-1].processed == 20)
    assert run.started == [0, 1, 1]
    [gone] = [
        one
        for one in StatusFolder(settings.state, WorkerStatus).read()
        if one.state is State.FAILED
    ]
    assert (gone.reason, gone.processed) == ("process 1 was killed by signal 9", 5)


def test_when_the_budget_of_restarts_is_spent_all_end_with_the_reason(settings):
    run = Run(settings, [obedient], [killed])
    with pytest.raises(PlacedRunError, match=r"signal 9 \(2 restarts within an hour"):
        run.until(lambda _: False)
    assert run.started == [0, 1, 1, 1]
    assert run.shown[-1].state is State.FAILED


def test_a_failure_that_another_start_would_meet_again_ends_all_at_once(settings):
    run = Run(settings, [obedient], [failing])
    with pytest.raises(PlacedRunError, match="@7 failed"):
        run.until(lambda _: False)
    assert run.started == [0, 1]


def test_what_fails_at_the_end_is_told(settings):
    with pytest.raises(PlacedRunError, match="the last commit was not confirmed"):
        Run(settings, [stubborn], [obedient]).until(lambda run: run.shown[-1].processed == 10)
