"""What an instance of a merger does with what its reader gives, without brokers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.errors import LinkDamagedError
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.client.partitions import client_partition
from headrace.links import source_reader
from headrace.links.merger import merging
from headrace.links.merger.merging import MergerCarrier
from headrace.links.merger.plan import ClockSource, MergerPlan
from headrace.links.merger.positions.position import InputPosition
from headrace.model import TopicPartition

SOURCES = {"a": ClockSource.WALL, "b": ClockSource.WALL}
PLAN = MergerPlan("m", "g", {}, SOURCES, "sorted", "late", 0, 1.0)
TARGET = TopicPartition("sorted", 0)
NOW_MS = 1_764_000_000_000
VALUE = b"v" * 100
SHARE = 2_000  # bytes of values, of each of two inputs


class Message:
    def __init__(self, source, offset, time_ms, error=None):
        self.topic, self.partition = (lambda: source), (lambda: 0)
        self.error = lambda: error
        self.offset, self.timestamp = (lambda: offset), (lambda: (1, time_ms))
        self.leader_epoch, self.value = (lambda: 0), (lambda: VALUE)

    def headers(self):
        return []

    def set_headers(self, headers):
        """As the client's, which keeps them."""


def test_damaged_records_refuse_their_partition(monkeypatch):
    """Also where the client does not say at which offset they are."""
    damage = KafkaError(KafkaError._BAD_MSG, "failed CRC32C check")
    message = Message("a", OFFSET_INVALID, NOW_MS, damage)
    consumer = SimpleNamespace(
        assign=lambda _: None, close=lambda: None, consume=lambda *_: [message]
    )
    monkeypatch.setattr(source_reader, "consumer", lambda *_: consumer)
    writer = SimpleNamespace(poll=lambda: None)
    monkeypatch.setattr(merging, "LinkWriter", lambda *_, one_by_one: writer)
    monkeypatch.setattr(merging, "high_watermarks", lambda _, at: dict.fromkeys(at, 1_000))
    carrier = MergerCarrier(PLAN, "id", {})
    carrier.add({TARGET: (InputPosition(7, 7), InputPosition(5, 5))})
    carrier.move(0)  # with what precedes them
    with pytest.raises(LinkDamagedError) as refusal:
        carrier.move(0)
    error = refusal.value
    assert (error.code, error.source, error.offset) == ("MERGER_DAMAGED", ("a", 0), 7)
    assert "headrace merger accept m a/0" in error.remedy


def test_offsets_of_partitions_that_wait_are_committed_every_hour(monkeypatch):
    """But not those of partitions that another instance has, or that are gone."""
    commits, clock = [], SimpleNamespace(now=10_000.0)
    writer = SimpleNamespace(
        begin=lambda: None,
        flush=lambda: None,
        known_ids=lambda _: set(),
        commit=lambda offsets, _: commits.append([(at.topic, at.offset) for at in offsets]),
    )
    reader = SimpleNamespace(check_topics=lambda _: None, remove=lambda _: None)
    monkeypatch.setattr(merging, "SourceReader", lambda *_: reader)
    monkeypatch.setattr(merging, "LinkWriter", lambda *_, one_by_one: writer)
    monkeypatch.setattr(merging, "describe", lambda *_: {"a": LiveTopic("a", "id", 1, 1)})
    monkeypatch.setattr(merging.time, "monotonic", lambda: clock.now)
    carrier = MergerCarrier(PLAN, "id", {})
    offsets = (TopicPartition("a", 0), 7), (TopicPartition("b", 0), 8)
    carrier.keep([client_partition(source, offset) for source, offset in offsets])
    for clock.now in (10_000.0, 10_001.0, 13_600.0):
        carrier.commit(None)
    assert commits == [[("a", 7)], [("a", 7)]]
    carrier.remove([TARGET])
    clock.now = 20_000.0
    carrier.commit(None)
    assert len(commits) == 2


class Reader:
    """Gives what is left of sources, unless they are paused."""

    def __init__(self, sources):
        self.left = {name: iter(enumerate(times)) for name, times in sources.items()}
        self.paused = set()

    def read(self, *_):
        records = [
            Message(name, *record)
            for name, left in self.left.items()
            if name not in self.paused
            for _, record in zip(range(3), left)  # noqa: B905 - up to three
        ]
        return records, {}

    def assign(self, _):
        pass

    def pause(self, partitions):
        self.paused |= {at.topic for at in partitions}

    def resume(self, partitions):
        self.paused -= {at.topic for at in partitions}


@settings(deadline=None)
@given(
    ahead_ms=st.lists(st.integers(1, 3_600_000), min_size=100, max_size=200),
    on_time=st.integers(0, 3),
)
@example(ahead_ms=[1_800_000] * 200, on_time=1)
def test_records_ahead_of_the_clock_are_held_up_to_the_share_of_their_source(ahead_ms, on_time):
    reader = Reader({"a": [NOW_MS + ms for ms in ahead_ms], "b": [NOW_MS] * on_time})
    writer = SimpleNamespace(begin=lambda: None, poll=lambda: None, send=lambda *_: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "SourceReader", lambda *_: reader)
        patch.setattr(merging, "LinkWriter", lambda *_, one_by_one: writer)
        patch.setattr(merging, "now_in_ms", lambda: NOW_MS)
        patch.setattr(merging, "high_watermarks", lambda _, at: dict.fromkeys(at, 1_000))
        carrier = MergerCarrier(PLAN, "id", {})
        carrier.waiting_bytes = 2 * SHARE
        carrier.add({TARGET: (InputPosition(0), InputPosition(0))})
        for _ in range(100):
            carrier.move(0)
        [output] = carrier._outputs.values()
        assert all(input_.bytes <= SHARE + 3 * len(VALUE) for input_ in output.inputs)
        assert reader.paused == {"a"}
