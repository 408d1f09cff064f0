"""What a driver says beside its lease, and what it is asked."""

from __future__ import annotations

import time
from dataclasses import replace

import msgspec
import pytest
from tests.unit.queries.windows.instance.test_lease_holder import Leases
from tests.waiting import wait_for

from headrace.kafka.read import polling
from headrace.pipelines.standby.driver_lease import DriverLease
from headrace.pipelines.standby.drivers import (
    REQUEST_KEY,
    TIMING,
    HandoverRequest,
    Standby,
)
from headrace.service import slot_lease
from headrace.service.leases import Claim

QUICK = replace(TIMING, lease_ms=600_000, renew_seconds=0.05, poll_seconds=0.01)


class DriverTopic(Leases):
    """The topic of a pipeline's leases: claims, and records with other keys."""

    def write_other(self, key, value):
        self.records.append((key, value, int(time.monotonic() * 1000)))

    def ask(self, holder):
        self.write_other(REQUEST_KEY, msgspec.json.encode(HandoverRequest(holder)))

    def said(self):
        return [value for key, value, _ in self.records if key.startswith(b"standby/")]

    def claims(self, holder):
        claims = [msgspec.json.decode(v, type=Claim) for key, v, _ in self.records if key == b"0"]
        return [claim for claim in claims if claim.holder == holder]

    def _produce(self, topic, value, key, *, partition, on_delivery):
        if key.isdigit():
            super()._produce(topic, value, key, partition=partition, on_delivery=on_delivery)
        else:
            self.write_other(key, value)


@pytest.fixture
def topic(monkeypatch):
    topic = DriverTopic()
    monkeypatch.setattr(polling, "consumer", topic.reader)
    monkeypatch.setattr(slot_lease, "producer", topic.sender)
    return topic


@pytest.fixture
def lease(topic):
    lease = DriverLease({}, "leases", QUICK)
    yield lease
    lease.close()


def test_a_request_names_a_lease_and_holds_until_it_is_released(topic, lease):
    wait_for(lambda: lease.slot == 0)
    topic.ask("another")
    topic.write_other(REQUEST_KEY, b"no request")
    topic.ask(lease.holder)
    wait_for(lambda: lease.is_asked)
    lease.give_back()
    assert not lease.is_asked
    wait_for(lambda: topic.claims(lease.holder)[-1].is_release)
    lease._rests_until = 0.0
    wait_for(lambda: lease.slot == 0)
    assert not lease.is_asked


def test_a_request_counts_once_also_where_the_topic_is_read_again(topic, lease):
    wait_for(lambda: lease.slot == 0)
    topic.ask(lease.holder)
    wait_for(lambda: lease.is_asked)
    lease.give_back()
    wait_for(lambda: lease._state.own is None)
    lease._rests_until = 0.0
    wait_for(lambda: lease.slot == 0)
    topic.error = RuntimeError("the reader is broken")
    wait_for(lambda: topic.readers == 2)
    wait_for(lambda: lease.slot == 0)
    assert not lease.is_asked


def test_requests_of_earlier_drivers_are_not_its_own(topic):
    topic.ask("earlier")
    lease = DriverLease({}, "leases", QUICK)
    try:
        wait_for(lambda: lease.slot == 0)
        assert not lease.is_asked
    finally:
        lease.close()


def test_a_standby_says_so_until_it_is_active_or_ends(topic):
    topic.write(0, Claim("other", "host"))
    lease = DriverLease({}, "leases", QUICK)
    lease.wait_as_standby(None)
    wait_for(topic.said)
    lease.wait_as_standby(2.5)
    wait_for(lambda: len(topic.said()) > 1)
    standbys = [msgspec.json.decode(value, type=Standby) for value in topic.said()]
    assert [standby.warm_age_seconds for standby in standbys] == [None, 2.5]
    assert {standby.holder for standby in standbys} == {lease.holder}
    lease.be_active()
    wait_for(lambda: topic.said()[-1] is None)
    lease.wait_as_standby(3.0)
    wait_for(lambda: topic.said()[-1] is not None)
    lease.close()
    assert topic.said()[-1] is None
