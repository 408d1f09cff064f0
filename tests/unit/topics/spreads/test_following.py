"""Producers that are cut off at any time never place a window differently."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BrokerUnreachableError, SpreadsUnknownError, TopicMissingError
from headrace.model import ByAccount, Spread, Topic, partition_of
from headrace.testing.memory import MemoryCluster
from headrace.topics.spreads import following as module
from headrace.topics.spreads.change import MARGIN, first_since
from headrace.topics.spreads.following import FollowedSpreads, SpreadsReader
from headrace.topics.spreads.spread_table import SPREADS_TOPIC, SpreadTable

MINUTE = timedelta(minutes=1)
LEAD = 30 * MINUTE
WINDOW = 10 * MINUTE
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
TOPIC = Topic(
    "events",
    partitions=16,
    latest_ahead=5 * MINUTE,
    partitioning=ByAccount(WINDOW, lead=LEAD),
)


def with_lead(lead: timedelta) -> Topic:
    return replace(TOPIC, partitioning=ByAccount(WINDOW, lead=lead))


class Producer:
    """Follows a table whose reads fail while it is cut off, by a clock of its own.

    Attributes:
        placed: partitions by window, of the account `a`.
    """

    def __init__(
        self, kafka: SimpleNamespace, skew: timedelta = timedelta(0), lead: timedelta = LEAD
    ) -> None:
        self._kafka, self._skew, self.is_cut_off = kafka, skew, False
        topic = with_lead(lead)
        self.spreads = FollowedSpreads([topic], self._read, self._now)
        self._place = partition_of(topic.partitioning, topic.partitions, self.spreads.of(topic))

    def send(self, time: datetime) -> int | None:
        """Returns the partition of an event; None: it is refused."""
        try:
            return self._place({}, "a", time)
        except SpreadsUnknownError:
            return None

    def _now(self) -> float:
        return (self._kafka.now + self._skew).timestamp()

    def _read(self) -> dict[str, SpreadTable]:
        if self.is_cut_off:
            raise BrokerUnreachableError("kafka", "cut off")
        return {"events": self._kafka.table} if self._kafka.table.version else {}


@pytest.fixture(autouse=True)
def _always_read(monkeypatch):
    """Each event makes a producer read: how often it does is not what is tested."""
    ticks = iter(range(10**9))
    monkeypatch.setattr(
        module, "time", SimpleNamespace(monotonic=lambda: next(ticks) * 100.0, time=None)
    )


STEPS = {"pass": 6, "apply": 3, "cut off": 2, "connect": 3, "send": 8}
"""What happens, and how often."""


@given(st.integers(0, 2**32), st.integers(-25, 25), st.integers(-25, 25))
def test_no_two_producers_place_a_window_differently_whoever_is_cut_off(seed, one, two):
    """Clocks differ by up to 50 seconds, and events are up to 2 hours late or 5 minutes ahead.

    After the first version, the lead is another one for each producer and each change.
    """
    random = Random(seed)
    leads = [LEAD, LEAD / 2, LEAD / 3]
    first = first_since(TOPIC, SpreadTable(), NOON)
    kafka = SimpleNamespace(now=NOON, table=SpreadTable().changed({"a": 2}, first, LEAD))
    producers = [
        Producer(kafka, timedelta(seconds=skew), random.choice(leads)) for skew in (one, two)
    ]
    places: dict[datetime, int] = {}
    for step in random.choices(list(STEPS), list(STEPS.values()), k=60):
        producer = random.choice(producers)
        if step == "pass":
            kafka.now += random.randrange(25) * MINUTE
        elif step == "apply":
            lead = random.choice(leads)
            since = first_since(with_lead(lead), kafka.table, kafka.now)
            kafka.table = kafka.table.changed({"a": random.randint(1, 16)}, since, lead)
        elif step == "send":
            for number in range(0, 13, 2):
                time = kafka.now + TOPIC.latest_ahead - number * WINDOW
                begin = time - (time - NOON) % WINDOW
                place = producer.send(time)
                if place is not None:
                    assert places.setdefault(begin, place) == place
        else:
            producer.is_cut_off = step == "cut off"
    final = Producer(kafka)
    for begin, place in places.items():
        assert final.send(begin) == place


def test_a_producer_that_can_read_refuses_nothing():
    kafka = SimpleNamespace(now=NOON, table=SpreadTable())
    producer = Producer(kafka)
    assert producer.send(NOON + TOPIC.latest_ahead) is not None
    kafka.table = kafka.table.changed({"a": 4}, first_since(TOPIC, kafka.table, NOON), LEAD)
    assert producer.send(NOON + TOPIC.latest_ahead) is not None


def test_a_producer_that_is_cut_off_refuses_what_it_can_not_know_and_sends_what_it_knows():
    kafka = SimpleNamespace(now=NOON, table=SpreadTable())
    producer = Producer(kafka)
    assert producer.send(NOON) is not None
    producer.is_cut_off = True
    kafka.now += 2 * LEAD
    assert producer.send(NOON + LEAD - MINUTE) is not None
    assert producer.send(NOON + LEAD) is None
    place = partition_of(TOPIC.partitioning, 16, producer.spreads.of(TOPIC))
    expected = r"events.*window 2026-05-01T12:30:00Z.*read last at 2026-05-01T12:00:00Z.*cut off"
    with pytest.raises(SpreadsUnknownError, match=expected):
        place({}, "a", NOON + LEAD)
    producer.is_cut_off = False
    assert producer.send(NOON + LEAD) is not None


def test_a_shorter_lead_that_was_applied_counts_and_a_longer_one_is_waited_for():
    table = SpreadTable(1, 10 * MINUTE)
    spreads = FollowedSpreads([TOPIC], lambda: {"events": table}, NOON.timestamp)
    assert spreads.of(TOPIC)("a", NOON) == ()
    with pytest.raises(SpreadsUnknownError):
        spreads.of(TOPIC)("a", NOON + 10 * MINUTE)
    since = first_since(TOPIC, SpreadTable(1, 2 * LEAD), NOON)
    assert since >= NOON + 2 * LEAD + MARGIN


def test_no_version_counts_before_an_earlier_one():
    """Who has not read the second one knows the lead of the first, and nothing of a third."""
    first = SpreadTable().changed({"a": 2}, first_since(TOPIC, SpreadTable(), NOON), LEAD)
    short = with_lead(TOPIC.latest_ahead + MINUTE)
    later = first_since(short, first, NOON + MINUTE)
    second = first.changed({"b": 3}, later, short.partitioning.lead)
    assert later >= NOON + MINUTE + LEAD + MARGIN
    assert first_since(short, second, NOON + 2 * MINUTE) >= later


def test_what_was_read_is_kept_for_a_start_without_kafka(tmp_path):
    table = SpreadTable(3, LEAD, {"a": (Spread(NOON, 4), Spread(NOON + WINDOW, 2))})
    file = tmp_path / "spreads"
    FollowedSpreads([TOPIC], lambda: {"events": table}, NOON.timestamp, file).refresh()

    def unreachable() -> dict[str, SpreadTable]:
        raise BrokerUnreachableError("kafka", "no answer")

    spreads = FollowedSpreads([TOPIC], unreachable, NOON.timestamp, file).of(TOPIC)
    assert spreads("a", NOON) == table.spreads["a"]
    with pytest.raises(SpreadsUnknownError):
        spreads("a", NOON + LEAD)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"read_at": 1}', b'{"read_at":0,"tables":{"e":"1"}}']
)
def test_a_file_that_can_not_be_read_is_nothing(tmp_path, content):
    file = tmp_path / "spreads"
    file.write_bytes(content)

    def unreachable() -> dict[str, SpreadTable]:
        raise BrokerUnreachableError("kafka", "no answer")

    spreads = FollowedSpreads([TOPIC], unreachable, NOON.timestamp, file).of(TOPIC)
    with pytest.raises(SpreadsUnknownError, match="read never"):
        spreads("a", NOON)


def test_a_table_that_was_deleted_is_not_taken_for_an_empty_one(caplog):
    kafka = SimpleNamespace(now=NOON, table=SpreadTable(2, LEAD, {"a": (Spread(NOON, 4),)}))
    producer = Producer(kafka)
    assert producer.send(NOON) is not None
    kafka.table, kafka.now = SpreadTable(), NOON + 2 * LEAD
    assert producer.send(NOON) is not None
    assert producer.send(NOON + LEAD) is None
    assert "it was deleted or cut" in caplog.text


def test_topics_without_a_lead_are_not_followed():
    def never() -> dict[str, SpreadTable]:
        raise AssertionError

    spreads = FollowedSpreads([Topic("plain", partitioning=ByAccount(WINDOW))], never)
    assert spreads.of(Topic("plain", partitioning=ByAccount(WINDOW))) is None
    spreads.start()


class Cluster(MemoryCluster):
    """A cluster in memory, which may have an open transaction."""

    is_open = False

    def live_unless_open(self, topic):
        return None if self.is_open else self.live(topic)


def test_the_table_is_read_and_then_what_has_changed():
    cluster = Cluster()
    reader = SpreadsReader(cluster)
    assert reader() == {}
    cluster.create(SPREADS_TOPIC)
    tables = [SpreadTable(version, LEAD, {"ä": (Spread(NOON, version),)}) for version in (1, 2)]
    for table in tables:
        cluster.append(SPREADS_TOPIC, 0, table.encoded(), b"events")
        assert reader() == {"events": table}
    cluster.append(SPREADS_TOPIC, 0, None, b"events")
    assert reader() == {}


def test_a_version_that_is_being_written_is_waited_for():
    cluster = Cluster()
    cluster.create(SPREADS_TOPIC)
    cluster.is_open = True
    spreads = FollowedSpreads([TOPIC], SpreadsReader(cluster), NOON.timestamp)
    with pytest.raises(SpreadsUnknownError, match="A version is just being written"):
        spreads.of(TOPIC)("a", NOON)


def test_what_can_not_be_decoded_is_no_table():
    cluster = Cluster()
    cluster.create(SPREADS_TOPIC)
    cluster.append(SPREADS_TOPIC, 0, b"{}", b"events")
    reader = SpreadsReader(cluster)
    for _ in range(2):
        with pytest.raises(KeyError):
            reader()


def test_the_stored_table_is_what_it_was():
    table = SpreadTable(7, LEAD, {"a": (Spread(NOON, 4),), "b": ()})
    assert SpreadTable.decoded(table.encoded()) == table
    assert json.loads(table.encoded()) == {
        "version": 7,
        "lead_us": 1_800_000_000,
        "spreads": {"a": [{"since_us": 1777636800000000, "n": 4}], "b": []},
    }


def test_a_missing_topic_is_an_empty_table():
    class Missing:
        def live_unless_open(self, topic):
            raise TopicMissingError(topic)

    assert SpreadsReader(Missing())() == {}
