"""The claim of a driver with a standby: its lease, and the lock of its machine."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
from tests.waiting import wait_for

from headrace import Join, Kafka, Lake, LateData, Pipeline, Topic
from headrace.errors import CheckpointInUseError, ClaimLostError
from headrace.pipelines.standby import claim as claim_module
from headrace.pipelines.standby.claim import MachineClaim, SharedClaim
from headrace.pipelines.standby.drivers import leases_topic
from headrace.pipelines.standby.rehearsal import is_empty, rehearsed
from headrace.pipelines.standby.status import DriverStatus, own_statuses
from headrace.pipelines.standby.warm_claim import WarmClaim
from headrace.service.leases import Lease
from headrace.service.status import State, StatusFolder
from headrace.spark.lock import CheckpointLock

PIPELINE = Pipeline("flow", Topic("clicks"), Lake("clicks"))


class FakeLease:
    """A lease that the test gives and takes."""

    def __init__(self):
        self.holder, self.slot, self.term = "own", None, 0
        self.other, self.is_lost, self.voided, self.waiting = None, False, [], "it is read"
        self.is_closed = self.is_asked = self.has_rested = False
        self.said: list[float | None] = []

    def give_back(self):
        self.slot, self.has_rested = None, True

    def wait_as_standby(self, warm_age_seconds):
        self.said.append(warm_age_seconds)

    def be_active(self):
        self.said.clear()

    def gain(self):
        self.other, self.slot, self.is_lost = None, 0, False
        self.term += 1

    def lose(self, holder="other"):
        self.other, self.slot, self.is_lost = holder, None, True

    def heartbeat(self):
        pass

    def lease(self, _):
        return None if self.other is None else Lease(self.other, "host-1", 0, 0.0)

    def has_lost(self, term):
        return self.is_lost or term != self.term

    def void(self, holder):
        self.voided.append(holder)

    def close(self):
        self.is_closed = True


@pytest.fixture
def lease(monkeypatch):
    lease = FakeLease()
    monkeypatch.setattr(claim_module, "ensure_leases_topic", lambda *_: None)
    monkeypatch.setattr(claim_module, "DriverLease", lambda *_: lease)
    return lease


@pytest.fixture
def claim(lease, tmp_path):
    return SharedClaim({}, PIPELINE, CheckpointLock(tmp_path, "flow"))


@pytest.fixture
def other_lock(tmp_path):
    """The lock as another process has it."""
    lock = CheckpointLock(tmp_path, "flow")
    yield lock
    lock.release()


def test_a_driver_without_standby_is_refused_beside_another(tmp_path, other_lock):
    other_lock.acquire()
    claim = MachineClaim(CheckpointLock(tmp_path, "flow"))
    with pytest.raises(CheckpointInUseError):
        claim.try_acquire()
    other_lock.release()
    assert claim.try_acquire()
    assert claim.keep()
    claim.check()
    claim.release()
    assert other_lock.try_acquire()


def test_a_standby_waits_for_the_lease_and_then_has_the_lock_too(claim, lease, other_lock):
    assert not claim.try_acquire()
    assert claim.waiting == "it is read"
    lease.lose()
    assert not claim.try_acquire()
    assert claim.waiting == "a driver on host-1 runs it"
    lease.gain()
    assert claim.try_acquire()
    claim.check()
    assert claim.keep()
    assert not other_lock.try_acquire()


def test_the_lease_of_a_process_that_has_died_here_is_ended(claim, lease, other_lock):
    other_lock.try_acquire(lease="other")
    lease.lose("other")
    claim.try_acquire()
    assert lease.voided == []  # it lives
    other_lock.release()  # as the kernel does when it dies
    claim.try_acquire()
    assert lease.voided == ["other"]
    lease.lose("elsewhere")
    claim.try_acquire()
    assert lease.voided == ["other"]


def test_a_standby_that_ends_a_lease_is_not_taken_for_dead_by_another(claim, lease, tmp_path):
    """It has the lock for a moment, and its lease afterwards: the lock may be free in between."""
    other = CheckpointLock(tmp_path, "flow")
    other.try_acquire(lease="dead")
    other.release()
    lease.lose("dead")
    claim.try_acquire()
    assert lease.voided == ["dead"]
    assert other.last_facts() == {"lease": ""}


def test_a_driver_that_hands_over_leaves_the_lease_and_the_lock(claim, lease, other_lock):
    lease.gain()
    claim.try_acquire()
    assert not claim.is_asked
    lease.is_asked = True
    assert claim.is_asked
    claim.hand_over()
    assert lease.has_rested
    with pytest.raises(ClaimLostError):
        claim.check()
    assert other_lock.try_acquire()


def test_it_does_not_take_itself_for_dead_before_its_release_is_read(claim, lease):
    lease.gain()
    claim.try_acquire()
    claim.hand_over()
    lease.other = lease.holder
    claim.try_acquire()
    assert lease.voided == []


def test_a_frozen_process_with_the_lock_does_not_keep_a_standby_from_starting(
    claim, lease, other_lock
):
    other_lock.try_acquire(lease="frozen")
    lease.gain()
    assert claim.try_acquire()
    assert claim.keep()
    other_lock.release()  # it has woken up, and stepped down
    claim.keep()
    assert not other_lock.try_acquire()


def test_a_process_without_standby_does(claim, lease, other_lock):
    other_lock.acquire()
    lease.gain()
    assert not claim.try_acquire()
    assert "has no standby" in claim.waiting


def test_no_batch_is_committed_without_the_lease(claim, lease):
    lease.gain()
    claim.try_acquire()
    lease.lose()
    with pytest.raises(ClaimLostError):
        claim.check()
    assert not claim.keep()


def test_nor_with_a_lease_that_another_had_in_between(claim, lease):
    lease.gain()
    claim.try_acquire()
    lease.lose()
    lease.gain()
    with pytest.raises(ClaimLostError):
        claim.check()
    assert not claim.keep()
    claim.step_down()
    assert claim.try_acquire()
    claim.check()


def test_a_batch_waits_while_it_is_not_known_whether_the_lease_is_valid(claim, lease):
    lease.gain()
    claim.try_acquire()
    lease.slot = None
    is_through = threading.Event()

    def check():
        claim.check()
        is_through.set()

    thread = threading.Thread(target=check)
    thread.start()
    assert not is_through.is_set()
    assert claim.keep()
    lease.slot = 0
    wait_for(is_through.is_set)
    thread.join()


def test_a_batch_that_waits_when_the_driver_ends_is_not_committed(claim, lease):
    lease.gain()
    claim.try_acquire()
    lease.slot = None
    failures = []

    def check():
        try:
            claim.check()
        except ClaimLostError as error:
            failures.append(error)

    thread = threading.Thread(target=check)
    thread.start()
    claim.release()
    thread.join()
    assert failures
    assert lease.is_closed


class FakeRehearsal:
    age_seconds = 1.25

    def __init__(self):
        self.calls = []

    def cancel(self):
        self.calls.append("cancel")

    def close(self):
        self.calls.append("close")


def test_a_standby_rehearses_until_it_is_active_and_says_so(claim, lease, tmp_path):
    rehearsals = []

    def rehearse():
        rehearsals.append(FakeRehearsal())
        return rehearsals[-1]

    folder = StatusFolder(tmp_path, DriverStatus)
    warm = WarmClaim("flow", claim, rehearse, folder)

    def status():
        [status] = folder.read()
        return status

    assert not warm.try_acquire()
    assert rehearsals == []  # it is not known yet whether another driver is active
    lease.lose()
    assert not warm.try_acquire()
    assert len(rehearsals) == 1
    assert lease.said == [1.25]
    lease.gain()
    assert warm.try_acquire()
    assert lease.said == []
    assert rehearsals[0].calls == ["cancel"]
    assert (status().role, status().takeovers, status().is_active) == ("active", 1, 1)
    [own] = own_statuses(tmp_path, ["flow"])
    assert own.instance.endswith(str(os.getpid()))
    lease.lose()
    assert not warm.keep()
    warm.step_down()
    assert not warm.try_acquire()
    assert (status().role, status().reason) == ("standby", "a driver on host-1 runs it")
    assert len(rehearsals) == 2
    warm.release()
    assert rehearsals[1].calls == ["close"]
    assert status().state is State.STOPPED


def test_a_rehearsal_has_no_target_of_the_project():
    topic = Topic("clicks", key="id")
    pipeline = Pipeline("flow", topic, Kafka(Topic("copies")), late_data=Lake("late"))
    changed = rehearsed(pipeline)
    assert changed.sinks == (Lake("rehearsal"),)
    assert changed.late_data is LateData.KEEP
    assert changed.consumer_group != pipeline.consumer_group
    assert leases_topic(pipeline) == "headrace.flow.leases"


def test_nor_has_one_of_a_join():
    join = Join(
        Topic("a"),
        Topic("b"),
        on="id",
        column="b",
        within=timedelta(hours=1),
        unmatched=Lake("unmatched"),
    )
    assert rehearsed(Pipeline("flow", join, Lake("joined"))).sinks == (Lake("rehearsal"),)


def test_a_topic_without_records_has_no_batch_to_wait_for():
    def view(latest, positions):
        return SimpleNamespace(latest=latest, positions=positions)

    assert is_empty([view({0: 5, 1: 0}, {0: 5, 1: 0})])
    assert not is_empty([view({0: 5}, {0: 4})])
    assert not is_empty([view({}, {})])  # the planner has not looked yet
