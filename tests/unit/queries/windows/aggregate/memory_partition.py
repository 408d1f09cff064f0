"""A partition of the matched topic whose instance is killed, with topics in memory."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from tests.unit.queries.pipeline import tick_of

from headrace.model.event import event_schema
from headrace.queries.declaration import StandingQueries
from headrace.queries.records.ended import WindowResults, decode_ended
from headrace.queries.records.matched import WindowPartial
from headrace.queries.records.result import decode_result
from headrace.queries.records.snapshots import Restored
from headrace.queries.windows.aggregate.plan import Plans
from headrace.queries.windows.answer.silent import WatchedQueries
from headrace.queries.windows.instance import owned as owned_module
from headrace.queries.windows.instance.owned import OwnedPartition

QUERIES = StandingQueries("ads", partitions=1)
SECOND_US = 1_000_000
WINDOW_US = 10 * SECOND_US
SELECT = "SELECT count(*) AS n FROM clicks"
TEXTS = {
    "plain": f"{SELECT} WINDOW 10 seconds",
    "facets": f"{SELECT} FACET country LIMIT 2 WINDOW 10 seconds ALLOWED LATENESS 5 seconds",
    "early": f"{SELECT} FACET country WINDOW 10 seconds EMIT EARLY EVERY 2 seconds",
    "other-topic": "SELECT count(*) AS n FROM views WINDOW 10 seconds",
    "quiet": f"{SELECT} FACET country WINDOW 10 seconds CLOSE BY QUIET TIME 5 seconds",
    "clock": (
        f"{SELECT} FACET country WINDOW 10 seconds CLOSE BY CLOCK 3 seconds "
        "EMIT EARLY EVERY 2 seconds"
    ),
}
BY_EVENT_TIME = ("plain", "facets", "early", "other-topic")


class Click:
    country: str


SCHEMAS = dict.fromkeys(("clicks", "views"), event_schema(Click))


def added(query, begin, counts, *, text=None):
    """Returns what some events of a query add to the window that begins after some windows.

    Args:
        query: its id.
        begin: number of the window.
        counts: of events, by country; of a query without facets, their sum counts.
        text: of the query; None: the one of ``TEXTS``.
    """
    text = text or TEXTS[query]
    events = sum(counts.values())
    has_facets = "FACET" in text
    groups = [((country,), (count,)) for country, count in counts.items()]
    return WindowPartial(
        query=query,
        registered_ms=0,
        revision=1,
        text=text,
        topic="views" if query == "other-topic" else "clicks",
        begin_us=begin * WINDOW_US,
        events=events,
        groups=groups if has_facets else [((), (events,))],
    )


def tick(seconds, topic="clicks", *, events=0):
    """Returns a tick whose events have come to a time; None: not known."""
    return tick_of(topic, None if seconds is None else int(seconds * SECOND_US), events=events)


class KilledError(Exception):
    """The instance is killed before a transaction is committed."""


class _MemoryProducer:
    """Writes transactions whole, as Kafka does."""

    def __init__(self, config, transactional_id, _, **_own):
        self._topics, self._partition = config["topics"], config["partition"]
        self.transactional_id = transactional_id

    def send(self, records):
        records = list(records)
        if self._partition.transactions_left == 0:
            raise KilledError
        if self._partition.transactions_left is not None:
            self._partition.transactions_left -= 1
        for record in records:
            self._topics.setdefault(record.topic, []).append(record.value)

    def close(self):
        self._topics = None


def _read_snapshots(config, place):
    """Reads from the base of the last position on, as instances do."""
    values = config["topics"].get(place.topic, [])
    restored = Restored()
    restored.take(values)
    if restored.position is None:
        return restored
    from_base = Restored()
    from_base.take(values[restored.position.base :])
    return from_base


def _high_watermarks(config, places):
    return {place: len(config["topics"].get(place.topic, [])) for place in places}


@contextmanager
def memory_topics():
    """Owned partitions have topics in memory meanwhile, and often write all windows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owned_module, "TransactionalProducer", _MemoryProducer)
        patch.setattr(owned_module, "read_snapshots", _read_snapshots)
        patch.setattr(owned_module, "high_watermarks", _high_watermarks)
        patch.setattr(owned_module, "time", _CLOCK)
        yield


# Of all instances: parsing the same texts again would take half of the time of a test.
_PLANS = Plans(SCHEMAS)
_CLOCK = SimpleNamespace(monotonic=lambda: _CLOCK.seconds, seconds=1_000.0)


@dataclass
class MemoryPartition:
    """Instances that take the records of a partition, one after the other.

    Attributes:
        records: of the matched topic.
        topics: that were written.
        now_ms: the clock.
        end: records before this offset have been sent.
        transactions_left: before the instance is killed; None: it is not.
    """

    records: list[object]
    topics: dict[str, list[bytes]] = field(default_factory=dict)
    now_ms: int = 0
    end: int = 0
    transactions_left: int | None = None

    def __post_init__(self):
        self._start()

    def _start(self):
        config = {"topics": self.topics, "partition": self}
        self.owned = OwnedPartition(config, QUERIES, 0, _PLANS, WatchedQueries(_PLANS, 1))
        self.owned.base_seconds, self.owned.max_transaction_bytes = 12.0, 500
        self.owned.catch_up_to(self.end)

    @property
    def results(self):
        """Results in the order in which they were written."""
        return [decode_result(value) for value in self.topics.get(QUERIES.results_topic, [])]

    @property
    def ended_records(self):
        """Records of ended windows, and clocks, in the order in which they were written."""
        values = self.topics.get(QUERIES.ended_topic, [])
        return [decode_ended(value, QUERIES.partitions) for value in values]

    @property
    def ended(self):
        """Results of ended windows, and early ones, in the order in which they were written."""
        windows = (record for record in self.ended_records if isinstance(record, WindowResults))
        return [result for window in windows for result in window.results]

    @property
    def late(self):
        return {query: count for query, count in self.owned.aggregator.late.items() if count}

    def send(self, count):
        """More records are there; an instance that is behind takes more of them."""
        self.end = min(len(self.records), self.end + count)
        self.take(2 * count + 1)

    def take(self, count):
        """Takes some matched records, and what there is of ended windows."""
        offset = self.owned.aggregator.offset
        for number in range(offset, min(self.end, offset + count)):
            self.owned.take(self.records[number], number, self.now_ms)
        ended = self.topics.get(QUERIES.ended_topic, [])
        for number in range(self.owned.answers.offset, len(ended)):
            record = decode_ended(ended[number], QUERIES.partitions)
            self.owned.take_ended(record, number, self.now_ms)

    def advance(self, milliseconds):
        self.now_ms += milliseconds
        self.owned.end_by_clock(self.now_ms)

    def go_on(self, topic, seconds):
        """The time of a topic without new events goes on."""
        owned = self.owned
        owned._keep(owned.aggregator.end_by_event_time(topic, seconds * SECOND_US, self.now_ms))

    def write(self):
        """Writes what is there; an instance that has just begun writes a snapshot, too."""
        self.owned.write(self.now_ms, lambda: None)

    def snapshot(self):
        """Writes when a snapshot is due."""
        _CLOCK.seconds += owned_module.SNAPSHOT_SECONDS
        self.owned.write(self.now_ms, lambda: None)

    def kill_within(self, transactions):
        """The instance is killed while it writes, behind some transactions."""
        self.transactions_left = transactions
        with suppress(KilledError):
            self.snapshot()
        self.transactions_left = None
        self.kill()

    def kill(self):
        """What was not written is lost; another instance starts."""
        self.owned.close()
        self._start()

    def stop(self):
        """The instance stops as it is told to, and another one starts."""
        self.owned.end(self.now_ms, lambda: None)
        self.kill()

    def finish(self):
        """All records are taken, and all windows end."""
        self.end = len(self.records)
        self.take(self.end)
        self.advance(10**8)
        self.snapshot()
        self.take(0)
        self.snapshot()
