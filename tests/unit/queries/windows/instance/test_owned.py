"""What the transactions of a partition have: nothing in them grows without a limit or expires."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import msgspec
import pytest
from tests.unit.queries.pipeline import tick_of

from headrace.kafka.read.cluster import LivePositions
from headrace.model.event import event_schema
from headrace.queries.declaration import StandingQueries
from headrace.queries.records.ended import COPY_AFTER_MS, PartitionClocks, WindowResults
from headrace.queries.records.matched import WindowPartial
from headrace.queries.records.result import QueryResult, ResultKind
from headrace.queries.records.snapshots import Restored
from headrace.queries.registry.record import RegisteredQuery, encode_query
from headrace.queries.windows.aggregate.plan import Plans
from headrace.queries.windows.aggregate.window import time_text
from headrace.queries.windows.answer.silent import WatchedQueries
from headrace.queries.windows.instance import owned as owned_module
from headrace.queries.windows.instance.owned import OwnedPartition
from headrace.queries.windows.instance.quiet import QUIET_MS
from headrace.queries.windows.instance.topic_ends import TopicEnd

MINUTE = 60_000_000
BASE = 1_700_000_040_000_000  # a full minute
NOW_MS = BASE // 1000
REGISTERED = datetime(2023, 11, 14, 22, 10, tzinfo=UTC)
HOUR_MS = 3_600_000
MANY = 3_000
EMPTY = "SELECT count(*) FROM clicks WINDOW 1 minute EMPTY WINDOWS EMIT"
LOSS = "SELECT count(*) FROM clicks WINDOW 1 minute LOSS OF SIGNAL AFTER 3 WINDOWS"
SNAPSHOT_SECONDS, BASE_SECONDS = 5.0, 60.0


class Click:
    country: str


class Owned:
    """A partition whose transactions are kept in memory.

    Attributes:
        partition: the instance's.
        transactions: that were written, each with its records.
        written: the records of the last call.
    """

    def __init__(self, monkeypatch, *texts, partitions=1):
        self.transactions, self.clock = [], SimpleNamespace(seconds=1_000.0)
        self.clock.monotonic = lambda: self.clock.seconds
        monkeypatch.setattr(owned_module, "time", self.clock)
        monkeypatch.setattr(owned_module, "TransactionalProducer", lambda *_, **_own: self)
        monkeypatch.setattr(owned_module, "read_snapshots", lambda *_: self._restored())
        monkeypatch.setattr(
            owned_module, "high_watermarks", lambda _, places: {places[0]: len(self.snapshots)}
        )
        self.queries = StandingQueries("ads", partitions=partitions)
        self.plans = Plans({"clicks": event_schema(Click)})
        self.watched = WatchedQueries(self.plans, partitions)
        for number, text in enumerate(texts):
            query_id = f"{number:0100}"
            query = RegisteredQuery(query_id, text, "clicks", 1, REGISTERED, REGISTERED, None)
            self.watched.take(*encode_query(query))
        self.start()

    def start(self):
        self.partition = OwnedPartition({}, self.queries, 0, self.plans, self.watched)

    def send(self, records):
        """Writes a transaction, as a producer does."""
        self.transactions.append(list(records))

    @property
    def snapshots(self):
        """Values of all records of the topic of snapshots."""
        return [
            value for records in self.transactions for value in self.values("snapshots", records)
        ]

    def values(self, topic, records):
        return [each.value for each in records if each.topic == f"ads.{topic}"]

    def _restored(self):
        """Reads from the base of the last position on, as instances do."""
        restored = Restored()
        restored.take(self.snapshots)
        if restored.position is None:
            return restored
        from_base = Restored()
        from_base.take(self.snapshots[restored.position.base :])
        return from_base

    def pass_minutes(self, minutes, *, after_seconds=1.0):
        """Time goes on to a minute; returns the values for the topic of snapshots."""
        reached_us = BASE + minutes * MINUTE
        clocks = PartitionClocks(0, {"clicks": reached_us}, reached_us)
        offset = self.partition.answers.offset
        self.partition.take_ended(clocks, offset, NOW_MS)
        return self.write(after_seconds=after_seconds)

    def write(self, *, now_ms=NOW_MS, after_seconds=1.0):
        """Writes what is due; returns the values for the topic of snapshots."""
        self.clock.seconds += after_seconds
        begun = len(self.transactions)
        self.partition.write(now_ms, lambda: None)
        self.written = [record for each in self.transactions[begun:] for record in each]
        return self.values("snapshots", self.written)


def silence_in(values):
    """Returns what is known of silence in records, by query."""
    restored = Restored()
    restored.take(values)
    return restored.silence


def test_what_is_known_of_many_queries_is_divided_and_is_written_where_it_has_changed(monkeypatch):
    owned = Owned(monkeypatch, *[LOSS] * MANY)
    owned.pass_minutes(0)
    values = owned.pass_minutes(1)
    assert len(silence_in(values)) == MANY
    assert max(map(len, values)) < 200_000
    assert sum(map(len, owned.pass_minutes(2))) < 1_000
    assert len(silence_in(owned.pass_minutes(3))) == MANY  # their loss of signal is known now
    assert sum(map(len, owned.pass_minutes(4))) < 1_000


def test_queries_that_ask_for_empty_windows_alone_have_no_silence(monkeypatch):
    owned = Owned(monkeypatch, *[EMPTY] * MANY)
    owned.pass_minutes(0)
    for offset, watched in enumerate(owned.watched.live(0, NOW_MS), start=1):
        window = ended_window(watched.registered.id)
        owned.partition.take_ended(window, offset, NOW_MS)
    assert sum(map(len, owned.pass_minutes(2))) < 1_000
    assert owned.partition.written.results == 2 * MANY


@pytest.mark.parametrize("after_seconds", [1.0, SNAPSHOT_SECONDS, BASE_SECONDS])
def test_an_instance_that_starts_knows_the_silence_of_all_queries(monkeypatch, after_seconds):
    owned = Owned(monkeypatch, *[LOSS] * 20)
    for minute in range(3):
        owned.pass_minutes(minute, after_seconds=after_seconds)
    owned.start()
    owned.pass_minutes(3, after_seconds=after_seconds)
    owned.pass_minutes(4, after_seconds=after_seconds)
    owned.start()
    owned.pass_minutes(9, after_seconds=after_seconds)
    lost = [value for each in owned.transactions for value in owned.values("results", each)]
    assert [msgspec.json.decode(value)["kind"] for value in lost] == ["lost"] * 20


def test_all_that_is_known_of_silence_is_behind_the_base(monkeypatch):
    owned = Owned(monkeypatch, *[LOSS] * 20)
    owned.pass_minutes(0)
    owned.pass_minutes(1)
    values = owned.write(after_seconds=BASE_SECONDS)
    assert len(silence_in(values)) == 20
    assert silence_in(owned.write(after_seconds=SNAPSHOT_SECONDS)) == {}


def test_results_are_in_the_declared_partition_of_their_query(monkeypatch):
    owned = Owned(monkeypatch, *[EMPTY] * 20)
    owned.pass_minutes(0)
    owned.pass_minutes(1)
    results = [record for record in owned.written if record.topic == "ads.results"]
    assert [record.partition for record in results] == [0] * 20


def ended_window(query="q"):
    result = QueryResult(
        query=query,
        registered=time_text(int(REGISTERED.timestamp() * 1e6)),
        revision=1,
        begin=time_text(BASE),
        end=time_text(BASE + MINUTE),
        emission=1,
        kind=ResultKind.FINAL,
        facets={},
        is_other=False,
        values={"count(*)": 1},
        events=1,
    )
    return WindowResults(0, "clicks", "clicks", BASE + MINUTE, [result], matches=1)


def copies_in(owned):
    ended = (each for each in owned.written if each.topic == "ads.ended")
    return [each for each in ended if each.key is not None]


def test_a_window_that_waits_for_long_is_written_to_its_partition_with_the_position(monkeypatch):
    owned = Owned(monkeypatch, partitions=2)
    owned.partition.take_ended(ended_window(), 0, NOW_MS)
    owned.write(now_ms=NOW_MS + COPY_AFTER_MS - 1, after_seconds=SNAPSHOT_SECONDS)
    assert copies_in(owned) == []
    owned.write(now_ms=NOW_MS + COPY_AFTER_MS, after_seconds=SNAPSHOT_SECONDS)
    [copy] = copies_in(owned)
    assert (copy.key, copy.partition) == (b"q", 0)
    assert msgspec.json.decode(copy.value, type=WindowResults) == msgspec.structs.replace(
        ended_window(), original=0
    )
    owned.write(now_ms=NOW_MS + COPY_AFTER_MS, after_seconds=SNAPSHOT_SECONDS)
    assert copies_in(owned) == []


def test_a_transaction_has_no_more_copies_than_it_has_time_for(monkeypatch):
    owned = Owned(monkeypatch, partitions=2)
    owned.partition.max_transaction_bytes = 1_000
    for offset in range(10):
        owned.partition.take_ended(ended_window(), offset, NOW_MS)
    numbers = []
    while owned.write(now_ms=NOW_MS + COPY_AFTER_MS, after_seconds=SNAPSHOT_SECONDS) and copies_in(
        owned
    ):
        numbers.append(len(copies_in(owned)))
    assert len(numbers) > 1
    assert sum(numbers) == 10


def added(number, begin=BASE):
    """Returns an event of a query of its own, in a window that stays open."""
    text = "SELECT count(*) FROM clicks WINDOW 1 minute"
    return WindowPartial(f"q{number}", 0, 1, text, "clicks", begin, 1, [((), (1,))])


def test_all_windows_are_written_in_transactions_that_have_time_for_them(monkeypatch):
    owned = Owned(monkeypatch)
    owned.partition.max_transaction_bytes = 2_000
    for number in range(50):
        owned.partition.take(added(number), number, NOW_MS)
    begun = len(owned.transactions)
    owned.write(after_seconds=BASE_SECONDS)
    sizes = [sum(len(each.value) for each in some) for some in owned.transactions[begun:]]
    assert len(sizes) > 5
    assert max(sizes) < 3_000
    owned.start()
    assert owned.partition.aggregator.windows == 50
    assert owned.partition.aggregator.counts["clicks"].unbalanced == 0


def pass_quiet_time(owned, milliseconds):
    """A topic has no new events; returns how far the time of its events is."""
    owned.clock.seconds += milliseconds / 1_000
    end = TopicEnd(LivePositions("", {}, {0: 3}), int(owned.clock.seconds * 1_000))
    owned.partition.end_if_quiet("clicks", end, NOW_MS)
    return owned.partition.aggregator.event_us["clicks"]


def test_the_time_of_a_quiet_topic_goes_on_after_a_restart(monkeypatch):
    owned = Owned(monkeypatch)
    owned.partition.take(tick_of("clicks", BASE, positions={0: 3}), 0, NOW_MS)
    assert pass_quiet_time(owned, QUIET_MS + HOUR_MS) == BASE + HOUR_MS * 1_000
    owned.write()
    owned.start()
    assert pass_quiet_time(owned, QUIET_MS + 7) == BASE + (HOUR_MS + 7) * 1_000


def closed_by_clock(offset, owned):
    text = "SELECT count(*) FROM clicks WINDOW 1 minute CLOSE BY CLOCK 10 seconds"
    owned.partition.take(
        WindowPartial("q", 0, 1, text, "clicks", BASE, 1, [((), (1,))]), offset, NOW_MS
    )


def test_markers_stay_while_records_are_to_be_taken(monkeypatch):
    owned = Owned(monkeypatch)
    closed_by_clock(0, owned)
    owned.partition.end_by_clock(NOW_MS + HOUR_MS)
    owned.write(now_ms=NOW_MS + HOUR_MS, after_seconds=SNAPSHOT_SECONDS)
    owned.start()
    owned.partition.catch_up_to(2)
    owned.write(now_ms=NOW_MS + 26 * HOUR_MS)
    assert len(owned.partition.aggregator.remembered()) == 1
    closed_by_clock(1, owned)
    assert owned.partition.aggregator.late == {"q": 1}
    owned.write(now_ms=NOW_MS + 26 * HOUR_MS, after_seconds=SNAPSHOT_SECONDS)
    assert owned.partition.aggregator.remembered() == []


def test_a_partition_that_cannot_be_read_ends_windows_by_the_clock_after_some_time(
    monkeypatch, caplog
):
    owned = Owned(monkeypatch)
    owned.partition.catch_up_to(5)
    closed_by_clock(0, owned)
    ends_ms = NOW_MS + HOUR_MS
    for seconds in (0, 60, 29):
        owned.clock.seconds += seconds
        owned.partition.end_by_clock(ends_ms)
    assert owned.partition.aggregator.windows == 1
    closed_by_clock(1, owned)  # something has come
    for seconds in (60, 29):
        owned.clock.seconds += seconds
        owned.partition.end_by_clock(ends_ms)
    assert owned.partition.aggregator.windows == 1
    owned.clock.seconds += 61
    owned.partition.end_by_clock(ends_ms)
    assert owned.partition.aggregator.windows == 0
    assert "is not read up to offset 5" in caplog.text
