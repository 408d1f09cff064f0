"""When a service that failed starts again, and how often."""

from __future__ import annotations

import pytest

from headrace.errors import (
    AuthorizationError,
    CheckpointInUseError,
    DispatcherRunningError,
    MatchedEventsRunningError,
)
from headrace.service.restart import (
    MAX_BUSY_STARTS,
    Fail,
    FailureKind,
    Refuse,
    Restart,
    RestartPolicy,
    Wait,
)
from headrace.settings.model import RestartSettings

PERMANENT, UNAVAILABLE = FailureKind.PERMANENT, FailureKind.UNAVAILABLE
BUSY, TRANSIENT = FailureKind.BUSY, FailureKind.TRANSIENT


class Policy:
    """A policy of failures that are their kinds, at times of which the last one is now."""

    def __init__(self, *, has_end=False, **settings):
        self.now = 0.0
        self._policy = RestartPolicy(
            RestartSettings(**settings), lambda kind: kind, has_end=has_end, clock=lambda: self.now
        )

    def after(self, kind, now=None):
        self.now = self.now if now is None else now
        return self._policy.after(kind)


def test_restarts_wait_twice_as_long_each_time_and_end_with_the_budget():
    policy = Policy(budget=3, first_delay_seconds=1.0)
    outcomes = [policy.after(TRANSIENT, now) for now in (0, 1, 2, 3)]
    assert outcomes[:3] == [Restart(1.0), Restart(2.0), Restart(4.0)]
    assert outcomes[3] == Fail("3 restarts within an hour did not help")


def test_thousands_of_restarts_wait_as_long_as_is_declared():
    policy = Policy(budget=3_000, first_delay_seconds=1.0, max_delay_seconds=1.0)
    assert {policy.after(TRANSIENT, now) for now in range(3_000)} == {Restart(1.0)}


def test_the_budget_is_for_an_hour():
    policy = Policy(budget=1)
    outcomes = [policy.after(TRANSIENT, now) for now in (0, 10, 3700)]
    assert [type(outcome) for outcome in outcomes] == [Restart, Fail, Restart]


def test_a_busy_machine_uses_up_no_restart_and_is_not_waited_for_for_ever():
    policy = Policy(budget=1, max_delay_seconds=60.0)
    outcomes = [policy.after(BUSY) for _ in range(MAX_BUSY_STARTS)]
    assert outcomes[:7] == [Wait(seconds) for seconds in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)]
    assert policy.after(BUSY, 1.0) == Fail("20 starts within an hour met a busy machine")
    assert policy.after(TRANSIENT, 2.0) == Restart(1.0)
    assert isinstance(policy.after(TRANSIENT, 3.0), Fail)
    assert policy.after(BUSY, 3700.0) == Wait(1.0)


@pytest.mark.parametrize("attempt_seconds", [0.0, 12.0, 130.0])
def test_a_machine_that_stays_busy_ends_a_run(attempt_seconds):
    """However long Spark waits: for a process of its own, or two minutes for an executor."""
    policy = Policy()
    policy.now = attempt_seconds
    for _ in range(MAX_BUSY_STARTS):
        outcome = policy.after(BUSY)
        assert isinstance(outcome, Wait)
        policy.now += outcome.seconds + attempt_seconds
    assert isinstance(policy.after(BUSY), Fail)


def test_a_server_is_waited_for_unless_the_service_ends_by_itself():
    assert {Policy(budget=1).after(UNAVAILABLE) for _ in range(100)} == {Wait(1.0)}
    once = Policy(budget=1, has_end=True)
    outcomes = [once.after(UNAVAILABLE) for _ in range(2)]
    assert [type(outcome) for outcome in outcomes] == [Restart, Fail]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (CheckpointInUseError("p", "/lake", "another driver"), Refuse()),
        (MatchedEventsRunningError("ads.clicks", "another-1"), Fail()),
        (DispatcherRunningError("d", "waw", "another-1"), Fail()),
        (AuthorizationError("READ", "topic t", "ann"), Fail()),
    ],
    ids=["refused", "runs elsewhere", "dispatches elsewhere", "failed"],
)
def test_what_cannot_pass_is_not_tried_again(error, outcome):
    policy = RestartPolicy(RestartSettings(), lambda _: PERMANENT)
    assert policy.after(error) == outcome
