"""Who has which partitions: decided by the order of records and the broker's times."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.queries.windows.instance.lease_holder import slots_of
from headrace.service.leases import LEASE_MS, Claim, LeaseTable


class Log:
    """A table and the records that it has taken."""

    def __init__(self, slots=2):
        self.table = LeaseTable(slots)

    def claim(self, slot, holder, time_ms, *, is_release=False):
        claim = Claim(holder, f"host-{holder}", is_release)
        self.table.take(slot, claim, time_ms, time_ms / 1000)

    def holder(self, slot):
        lease = self.table.lease(slot)
        return None if lease is None else lease.holder


def test_the_first_claim_of_a_free_slot_counts():
    log = Log()
    log.claim(0, "a", 1_000)
    log.claim(0, "b", 1_001)
    assert log.holder(0) == "a"
    assert log.table.of("b") is None
    slot, lease = log.table.of("a")
    assert (slot, lease.holder, lease.host) == (0, "a", "host-a")


def test_a_lease_that_is_renewed_stays():
    log = Log()
    for n in range(20):
        log.claim(0, "a", n * 1_000)
        log.claim(0, "b", n * 1_000 + 500)
    assert log.holder(0) == "a"


def test_a_claim_counts_once_the_lease_was_not_renewed_for_five_seconds():
    log = Log()
    log.claim(0, "a", 1_000)
    log.claim(0, "b", 1_000 + LEASE_MS)
    assert log.holder(0) == "a"
    log.claim(0, "b", 1_001 + LEASE_MS)
    assert log.holder(0) == "b"


def test_a_claim_counts_where_the_brokers_clock_was_set_back_since_the_last_renewal():
    log = Log()
    log.claim(0, "a", 3_600_000)
    log.claim(0, "b", 3_600_000 - LEASE_MS)
    assert log.holder(0) == "a"
    log.claim(0, "b", 10_000)
    assert log.holder(0) == "b"


def test_who_lost_a_slot_can_not_renew_it():
    log = Log()
    log.claim(0, "a", 1_000)
    log.claim(0, "b", 10_000)
    log.claim(0, "a", 10_100)
    assert log.holder(0) == "b"


def test_a_lease_that_is_over_is_renewed_where_no_other_instance_wants_it():
    log = Log()
    log.claim(0, "a", 1_000)
    log.claim(0, "a", 60_000)
    assert log.holder(0) == "a"
    assert log.table.lease(0).renewed_ms == 60_000


def test_a_slot_that_is_given_back_is_free_at_once():
    log = Log()
    log.claim(0, "a", 1_000)
    log.claim(0, "b", 1_100, is_release=True)
    assert log.holder(0) == "a"
    log.claim(0, "a", 1_200, is_release=True)
    assert log.table.free(1.2) == [0, 1]
    log.claim(0, "b", 1_300)
    assert log.holder(0) == "b"


def test_slots_are_free_without_a_lease_and_when_it_is_about_to_be_over():
    log = Log(3)
    log.claim(1, "a", 1_000)
    assert log.table.free(2.0) == [0, 2]
    assert log.table.free(1.0 + LEASE_MS / 1000 + 0.1) == [0, 1, 2]


@pytest.mark.parametrize(
    ("partitions", "per_instance", "slots"),
    [
        (8, None, [range(8)]),
        (8, 4, [range(4), range(4, 8)]),
        (8, 3, [range(3), range(3, 6), range(6, 8)]),
        (1, 5, [range(1)]),
    ],
)
def test_slots_have_each_partition_once(partitions, per_instance, slots):
    assert slots_of(partitions, per_instance) == slots


@given(st.integers(0, 2**32))
def test_whoever_reads_the_records_knows_the_same_holders_and_no_slot_has_two(seed):
    chance = random.Random(seed)
    first, second = Log(3), Log(3)
    time_ms = 0
    for _ in range(200):
        time_ms += chance.choice([1, 100, 1_000, 3_000])
        record = (chance.randrange(3), chance.choice("abcd"), time_ms)
        is_release = chance.random() < 0.1
        before = [first.table.lease(slot) for slot in range(3)]
        first.claim(*record, is_release=is_release)
        second.claim(*record, is_release=is_release)
        for slot in range(3):
            now, earlier = first.table.lease(slot), before[slot]
            if now is not None and earlier is not None and now.holder != earlier.holder:
                assert time_ms > earlier.renewed_ms + LEASE_MS
    assert [first.holder(slot) for slot in range(3)] == [second.holder(slot) for slot in range(3)]
