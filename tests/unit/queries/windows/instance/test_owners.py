"""Slots of standing queries, as the leases say."""

from __future__ import annotations

from types import SimpleNamespace

import confluent_kafka
import msgspec
import pytest

from headrace import StandingQueries
from headrace.queries.windows.instance import owners as query_instances
from headrace.queries.windows.instance.owners import (
    UNCOVERED_MS,
    instance_slots,
    uncovered_partitions,
)
from headrace.service.leases import Claim

NOW_MS = 1_800_000_000_000
QUERIES = StandingQueries("ads", partitions=5, partitions_per_instance=2)


def record(slot, claim, time_ms):
    """Returns a record of the topic of leases."""
    return SimpleNamespace(
        key=lambda: b"%d" % slot,
        value=lambda: msgspec.json.encode(claim),
        timestamp=lambda: (confluent_kafka.TIMESTAMP_LOG_APPEND_TIME, time_ms),
    )


@pytest.fixture
def slots(monkeypatch):
    """``slots({0: age})``: the slots whose leases were renewed so many milliseconds ago."""

    def of(ages, released=()):
        records = []
        for slot, age_ms in ages.items():
            claim = Claim(f"instance-{slot}", "host")
            records.append(record(slot, claim, NOW_MS - age_ms))
            if slot in released:
                records.append(
                    record(slot, msgspec.structs.replace(claim, is_release=True), NOW_MS)
                )
        monkeypatch.setattr(query_instances, "table_records", lambda *_: records)
        return instance_slots({}, QUERIES, NOW_MS)

    return of


def test_a_slot_has_its_partitions_and_the_instance_that_renews_its_lease(slots):
    shown = slots({0: 300, 1: UNCOVERED_MS, 2: 0})
    assert [slot.partitions for slot in shown] == [(0, 1), (2, 3), (4,)]
    assert [slot.holder for slot in shown] == ["instance-0", "instance-1", "instance-2"]
    assert [slot.renewal_age_seconds for slot in shown] == [0.3, UNCOVERED_MS / 1000, 0.0]
    assert uncovered_partitions(shown) == ()


def test_partitions_are_uncovered_without_a_lease_or_with_one_that_is_lost(slots):
    shown = slots({0: UNCOVERED_MS + 1, 1: 100}, released={1})
    assert [slot.is_covered for slot in shown] == [False, False, False]
    assert (shown[0].host, shown[1].host, shown[1].renewal_age_seconds) == ("host", "", None)
    assert uncovered_partitions(shown) == (0, 1, 2, 3, 4)


def test_a_clock_behind_that_of_the_broker_makes_no_age_below_zero(slots):
    assert slots({0: -2_000})[0].renewal_age_seconds == 0
