"""A registry that is asked for now and then has what its topic has, though Kafka compacts it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.unit.queries.pipeline import registration

from headrace.kafka.table.topic_table import MAX_IDLE_SECONDS
from headrace.queries.language import parse_query
from headrace.queries.registry import followed as followed_module
from headrace.queries.registry.followed import FollowedRegistry

COUNT = "SELECT count(*) FROM clicks"


class CompactedTopic:
    """The topic of a registry without retention.

    Attributes:
        records: key and value by offset; compaction leaves gaps.
        clock: the monotonic one of the process that reads.
        read: offsets from which was read on.
    """

    def __init__(self, monkeypatch):
        self.records, self.next_offset, self.read = {}, 0, []
        self.clock = SimpleNamespace(seconds=10 * MAX_IDLE_SECONDS)
        clock = SimpleNamespace(monotonic=lambda: self.clock.seconds)
        monkeypatch.setattr(followed_module, "time", clock)
        described = SimpleNamespace(topic_id="T")
        monkeypatch.setattr(followed_module, "describe", lambda _, names: {names[0]: described})
        # Compaction does not move the first offset.
        monkeypatch.setattr(followed_module, "earliest_offsets", lambda _, places: {places[0]: 0})
        monkeypatch.setattr(
            followed_module, "high_watermarks", lambda _, places: {places[0]: self.next_offset}
        )
        monkeypatch.setattr(followed_module, "read_records", self._read)

    def register(self, query_id):
        self._append(*registration(query_id, COUNT, topic="clicks"))

    def cancel(self, query_id):
        self._append(query_id.encode(), None)

    def compact(self):
        """Removes records that later ones have replaced, and old tombstones."""
        newest = {key: offset for offset, (key, _) in self.records.items()}
        self.records = {
            offset: (key, value)
            for offset, (key, value) in self.records.items()
            if newest[key] == offset and value is not None
        }

    def _append(self, key, value):
        self.records[self.next_offset] = key, value
        self.next_offset += 1

    def _read(self, config, group, ranges):
        [range_] = ranges
        self.read.append(range_.start)
        for offset, (key, value) in self.records.items():
            if range_.start <= offset < range_.end:
                yield SimpleNamespace(
                    key=lambda key=key: key,
                    value=lambda value=value: value,
                    offset=lambda offset=offset: offset,
                )


@pytest.fixture
def topic(monkeypatch):
    return CompactedTopic(monkeypatch)


def registered(registry):
    return set(registry.table({}).registered)


def test_a_query_that_was_cancelled_while_nothing_was_read_does_not_come_back(topic):
    registry = FollowedRegistry("ads.queries", parse_query)
    topic.register("cancelled")
    assert registered(registry) == {"cancelled"}
    topic.cancel("cancelled")
    topic.register("other")
    topic.clock.seconds += 2 * MAX_IDLE_SECONDS
    topic.compact()
    assert registered(registry) == {"other"}


def test_what_was_read_not_long_ago_is_not_read_again(topic):
    registry = FollowedRegistry("ads.queries", parse_query)
    for number in range(3):
        topic.register(f"q{number}")
        topic.clock.seconds += MAX_IDLE_SECONDS
        assert len(registered(registry)) == number + 1
    assert topic.read == [0, 1, 2]
