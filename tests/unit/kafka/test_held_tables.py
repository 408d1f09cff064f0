"""Tables that a process holds from one batch to the next."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import pytest

from headrace.kafka.table import topic_table as table_module
from headrace.kafka.table.topic_table import MAX_IDLE_SECONDS, HeldTable, held_table, live_positions
from headrace.testing.memory import MemoryCluster

TOPIC = "keys"


class Keys(dict):
    """A table of values.

    Attributes:
        read: offsets of all records that were read, also before the table was emptied.
    """

    read: ClassVar[list[int]] = []

    def take(self, records):
        for record in records:
            self.read.append(record.offset())
            self[record.key()] = record.value()


@pytest.fixture
def cluster():
    cluster = MemoryCluster()
    cluster.create(TOPIC)
    return cluster


@pytest.fixture
def read(monkeypatch):
    monkeypatch.setattr(Keys, "read", [])
    return Keys.read


def read_to_end(held, cluster):
    return held.read_to(live_positions(cluster, [TOPIC])[TOPIC], cluster, TOPIC)


def test_a_table_that_was_not_read_for_an_hour_is_read_from_the_first_record(
    cluster, read, monkeypatch
):
    clock = SimpleNamespace(seconds=10 * MAX_IDLE_SECONDS)
    monkeypatch.setattr(table_module, "time", SimpleNamespace(monotonic=lambda: clock.seconds))
    held = HeldTable(Keys)
    for _ in range(2):
        cluster.append(TOPIC, 0, b"1", b"a")
        read_to_end(held, cluster)
        clock.seconds += MAX_IDLE_SECONDS
    assert read == [0, 1]
    cluster.append(TOPIC, 0, b"1", b"a")
    clock.seconds += 1
    read_to_end(held, cluster)
    assert read == [0, 1, 0, 1, 2]


def test_a_table_that_retention_has_overtaken_has_what_the_topic_has(cluster):
    held = HeldTable(Keys)
    cluster.append(TOPIC, 0, b"1", b"deleted")
    read_to_end(held, cluster)
    cluster.append(TOPIC, 0, None, b"deleted")
    cluster.append(TOPIC, 0, b"1", b"kept")
    cluster.delete_before(TOPIC, 0, 2)
    assert read_to_end(held, cluster) == {b"kept": b"1"}


def test_a_table_of_a_recreated_topic_has_no_record_of_the_former_topic(cluster):
    held = HeldTable(Keys)
    for key in (b"former", b"new"):
        cluster.create(TOPIC)
        cluster.append(TOPIC, 0, b"1", key)
        assert read_to_end(held, cluster) == {key: b"1"}


def test_a_table_whose_use_has_failed_is_not_held(cluster):
    def lent():
        return held_table(Keys, "of a failure")

    with pytest.raises(OSError), lent() as failed:
        raise OSError
    with lent() as first:
        assert first is not failed
    with lent() as second:
        assert second is first


def test_the_table_that_was_not_used_for_longest_is_dropped():
    def lend(number):
        with held_table(Keys, "dropped", number) as held:
            return held

    first, second = lend(1), lend(2)
    assert lend(1) is first
    for number in range(3, 18):
        lend(number)
    assert lend(1) is first
    assert lend(2) is not second
