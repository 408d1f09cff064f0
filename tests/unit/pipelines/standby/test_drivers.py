"""Who the drivers of a pipeline are, by its topic of leases, and how one hands over."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from headrace import Lake, Pipeline, Topic
from headrace.errors import HandoverError
from headrace.pipelines.standby import drivers as drivers_module
from headrace.pipelines.standby.drivers import (
    REQUEST_KEY,
    Drivers,
    HandoverRequest,
    Standby,
    hand_over,
    read_drivers,
)
from headrace.service.leases import Claim, Lease

PIPELINE = Pipeline("flow", Topic("clicks"), Lake("clicks"))
NOW_MS = 1_800_000_000_000
A = Lease("a", "host-1", NOW_MS, 0.0)
B = Lease("b", "host-2", NOW_MS, 0.0)
WARM = Standby("b", "host-2", 3.0)


def record(key, value, age_ms=0):
    content = None if value is None else msgspec.json.encode(value)
    return SimpleNamespace(
        key=lambda: key, value=lambda: content, timestamp=lambda: (1, NOW_MS - age_ms)
    )


def standby(holder, warm_age_seconds=None, age_ms=0):
    value = Standby(holder, f"host of {holder}", warm_age_seconds)
    return record(value.key, value, age_ms)


@pytest.fixture
def topic(monkeypatch):
    """The records of the topic of leases."""
    records = []
    monkeypatch.setattr(drivers_module, "table_records", lambda *_: records)
    monkeypatch.setattr(drivers_module, "now_in_ms", lambda: NOW_MS)
    return records


def test_drivers_are_the_holder_of_the_lease_and_those_that_say_that_they_wait(topic):
    topic += [
        record(b"0", Claim("a", "host-1"), 3_000),
        standby("b", 2.5, 500),
        standby("c", None, 200),
        record(REQUEST_KEY, HandoverRequest("a")),
    ]
    drivers = read_drivers({}, "leases")
    assert (drivers.active.holder, drivers.active.host) == ("a", "host-1")
    assert [s.holder for s in drivers.standbys] == ["b", "c"]
    assert [s.host for s in drivers.warm] == ["host of b"]


def test_those_that_have_ended_or_write_nothing_any_more_are_left_out(topic):
    topic += [
        record(b"0", Claim("a", "host-1"), 10_000),
        standby("b", 2.5, 10_000),
        standby("c", 2.5),
        record(WARM.key, None),
        standby("d", 2.5),
        record(Standby("d", "").key, None),
    ]
    drivers = read_drivers({}, "leases")
    assert drivers.active is None
    assert [s.holder for s in drivers.standbys] == ["c"]


def test_records_of_other_programs_are_left_out(topic):
    topic += [
        record(b"0", "no claim"),
        record(b"standby/x", [1]),
        record(None, "no key"),
        record(b"0", Claim("a", "host-1")),
    ]
    drivers = read_drivers({}, "leases")
    assert (drivers.active.holder, drivers.standbys) == ("a", ())


def test_a_standby_that_has_taken_over_is_no_standby(topic):
    topic += [standby("b", 2.5, 100), record(b"0", Claim("b", "host-2"))]
    assert read_drivers({}, "leases").standbys == ()


@pytest.fixture
def handover(monkeypatch):
    """Hands over, where the topic of leases names these drivers; returns what was written too."""

    def handover(*states):
        looks, written, clock = iter(states), [], iter(range(1_000))
        monkeypatch.setattr(drivers_module, "read_drivers", lambda *_: next(looks, states[-1]))
        monkeypatch.setattr(drivers_module, "write_changelog", lambda *a: written.append(a))
        times = SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None)
        monkeypatch.setattr(drivers_module, "time", times)
        try:
            return hand_over({}, PIPELINE), written
        except HandoverError as error:
            return error.reason, written

    return handover


def test_the_active_driver_is_asked_and_another_one_has_the_lease(handover):
    both = Drivers(A, (WARM,))
    done, written = handover(both, both, Drivers(None, (WARM,)), Drivers(B))
    assert (done.from_host, done.to_host) == ("host-1", "host-2")
    [(_, name, changes)] = written
    assert name == "headrace.flow.leases"
    assert changes == {REQUEST_KEY: msgspec.json.encode(HandoverRequest("a"))}


@pytest.mark.parametrize(
    ("drivers", "reason"),
    [
        (Drivers(None, (WARM,)), "no driver that was started with --standby runs it"),
        (Drivers(A), "it has no standby"),
        (Drivers(A, (Standby("b", "host-2"),)), "it has 1 standby that is not warm yet"),
    ],
)
def test_nothing_is_asked_where_no_warm_standby_waits(handover, drivers, reason):
    assert handover(drivers) == (reason, [])


def test_a_handover_that_does_not_come_is_reported(handover):
    reason, written = handover(Drivers(A, (WARM,)))
    assert "host-1 still has the lease" in reason
    assert written
