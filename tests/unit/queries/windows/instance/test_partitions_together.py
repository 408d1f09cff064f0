"""The counts of several partitions balance, whatever is killed, and also where data is deleted."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from contextlib import suppress
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.queries.windows.aggregate.memory_partition import (
    BY_EVENT_TIME,
    SCHEMAS,
    SECOND_US,
    TEXTS,
    KilledError,
    added,
    tick,
)

from headrace.model import TopicPartition
from headrace.model.partitioning import partition_of_key
from headrace.queries.declaration import StandingQueries
from headrace.queries.records.ended import PartitionClocks, decode_ended
from headrace.queries.records.matched import Tick, WindowPartial
from headrace.queries.records.result import ResultKind, decode_result
from headrace.queries.records.snapshots import Restored
from headrace.queries.windows.aggregate.plan import Plans
from headrace.queries.windows.answer.silent import WatchedQueries
from headrace.queries.windows.instance import owned as owned_module
from headrace.queries.windows.instance.owned import SNAPSHOT_SECONDS, OwnedPartition

TOPICS = ("clicks", "views")
HOUR_MS = 3_600_000
CLOCK = SimpleNamespace(seconds=1_000.0, monotonic=lambda: CLOCK.seconds)


class Producer:
    """Writes transactions whole, unless its instance is killed before."""

    def __init__(self, cluster, transactional_id, _, **_own):
        self._cluster, self._number = cluster, int(transactional_id.rpartition(".")[2])

    def send(self, records):
        cluster, records = self._cluster, list(records)
        if cluster.transactions_left == 0:
            raise KilledError
        if cluster.transactions_left is not None:
            cluster.transactions_left -= 1
        for record in records:
            partition = record.partition
            if partition < 0:
                partition = partition_of_key(record.key, cluster.queries.partitions)
            log = cluster.log(record.topic, partition)
            if record.topic == cluster.queries.ended_topic:
                ended = decode_ended(record.value, cluster.queries.partitions)
                cluster.maybe_lose(record.topic, partition, len(log), ended)
            log.append(record.value)

    def close(self):
        """There is nothing to give up."""


def read_snapshots(cluster, place):
    """Reads from the base of the last position on, or from further back, as instances do."""
    values = cluster.log(place.topic, place.partition)
    first = cluster.first[place.topic, place.partition]
    restored = Restored()
    restored.take(values[first:])
    if restored.position is None or restored.answered is None:
        return restored
    from_base = Restored()
    start = min(restored.position.base, max(0, len(values) - cluster.look))
    from_base.take(values[max(first, start) :])
    return from_base


@pytest.fixture(autouse=True, scope="module")
def _memory():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owned_module, "TransactionalProducer", Producer)
        patch.setattr(owned_module, "read_snapshots", read_snapshots)
        patch.setattr(owned_module, "time", CLOCK)
        patch.setattr(
            owned_module,
            "high_watermarks",
            lambda cluster, places: {p: len(cluster.log(p.topic, p.partition)) for p in places},
        )
        yield


class Cluster:
    """Topics in memory, and for each partition an instance that has it, or none.

    Attributes:
        loses: the topic whose next record of a window nobody gets; None: all get all.
        lost: that record: its place, topic of events and matches; None: there is none.
    """

    def __init__(self, chance, partitions):
        self.chance = chance
        self.loses = self.lost = None
        self.queries = StandingQueries("ads", partitions=partitions)
        self.plans = Plans(SCHEMAS)
        self.topics, self.first = {}, Counter()
        self.matched = [[] for _ in range(partitions)]
        self.owned = [None] * partitions
        self.look = chance.choice([10, 60, 10**9])
        self.transactions_left = None
        self.now_ms = self.seconds = 0

    def log(self, topic, partition):
        return self.topics.setdefault((topic, partition), [])

    def maybe_lose(self, topic, partition, offset, record):
        """Loses a record that is written, if one of its topic is to be lost."""
        if topic != self.loses or isinstance(record, Tick | PartitionClocks):
            return
        matches = record.events if isinstance(record, WindowPartial) else record.matches
        if matches:
            self.loses, self.lost = None, ((topic, partition, offset), record.topic, matches)

    def records(self, topic, partition, log, offset, count):
        """Yields records from an offset on with their offsets, and none that is lost."""
        lost = self.lost[0] if self.lost else None
        for at, record in enumerate(log[offset : offset + count], offset):
            if (topic, partition, at) != lost:
                yield at, record

    def match(self):
        """A batch of each topic adds to some windows."""
        self.seconds += self.chance.randrange(6)
        events = Counter()
        for _ in range(self.chance.randrange(6)):
            query, number = self.chance.choice(sorted(TEXTS)), self.chance.randrange(3)
            begin = self.seconds // 10 + self.chance.randrange(-1, 2)
            record = added(query, begin, {"a": self.chance.randrange(1, 4), "b": 1})
            place = (begin + number) % len(self.matched)
            if self.chance.random() < 0.05:
                record = msgspec.structs.replace(record, groups=[(("a", "b", "c"), ())])
            offset = len(self.matched[place])
            self.maybe_lose(self.queries.matched_topic, place, offset, record)
            self.matched[place].append(msgspec.structs.replace(record, query=f"{query}{number}"))
            events[place, record.topic] += record.events
        for place, log in enumerate(self.matched):
            log.extend(tick(self.seconds, topic, events=events[place, topic]) for topic in TOPICS)

    def start(self, number):
        if self.owned[number] is None:
            watched = WatchedQueries(self.plans, self.queries.partitions)
            owned = OwnedPartition(self, self.queries, number, self.plans, watched)
            owned.base_seconds, owned.max_transaction_bytes = 12.0, 600
            first = self.first[self.queries.ended_topic, number]
            owned.answers.skip_to(first)
            owned.catch_up_to(len(self.matched[number]))
            self.owned[number] = owned

    def kill(self, number):
        self.owned[number] = None

    def take(self, number, matched, ended):
        """An instance takes some records of both topics."""
        owned = self.owned[number]
        topic, log = self.queries.matched_topic, self.matched[number]
        for at, record in self.records(topic, number, log, owned.aggregator.offset, matched):
            owned.take(record, at, self.now_ms)
        topic = self.queries.ended_topic
        log = self.log(topic, number)
        for at, value in self.records(topic, number, log, owned.answers.offset, ended):
            owned.take_ended(decode_ended(value, self.queries.partitions), at, self.now_ms)
        owned.end_by_clock(self.now_ms)

    def go_on(self, number):
        """The time of a topic goes on without new events."""
        owned, topic = self.owned[number], self.chance.choice(TOPICS)
        reached_us = (self.seconds + self.chance.randrange(20)) * SECOND_US
        owned._keep(owned.aggregator.end_by_event_time(topic, reached_us, self.now_ms))

    def write(self, number, *, is_snapshot, transactions=None):
        """An instance writes what is due, and may be killed behind some transactions."""
        CLOCK.seconds += SNAPSHOT_SECONDS if is_snapshot else 0
        self.transactions_left = transactions
        with suppress(KilledError):
            self.owned[number].write(self.now_ms, lambda: None)
        if transactions is not None:
            self.kill(number)
        self.transactions_left = None

    def delete(self, number):
        """All snapshots of a partition are deleted, and perhaps older ended windows."""
        self.kill(number)
        self.now_ms += 1
        deleted = [(self.queries.snapshots_topic, 1.0)]
        if self.chance.random() < 0.5:
            deleted.append((self.queries.ended_topic, self.chance.random()))
        for topic, share in deleted:
            self.first[topic, number] = round(share * len(self.log(topic, number)))

    def delete_taken(self, number):
        """Ended windows are deleted that an instance which starts does not need."""
        snapshots = read_snapshots(self, TopicPartition(self.queries.snapshots_topic, number))
        if snapshots.answered:
            place = self.queries.ended_topic, number
            self.first[place] = max(self.first[place], snapshots.answered.first_offset)

    def step(self, *, with_deletions):
        number = self.chance.randrange(len(self.owned))
        action = self.chance.random()
        if action < 0.3:
            self.match()
        elif action < 0.4:
            self.now_ms += self.chance.choice([10, 1_000, 6_000, HOUR_MS + 100_000])
        elif self.owned[number] is None:
            self.start(number)
        elif action < 0.43:
            self.go_on(number)
        elif action < 0.7:
            self.take(number, self.chance.randrange(12), self.chance.randrange(40))
        elif action < 0.9:
            killed_behind = self.chance.randrange(6) if self.chance.random() < 0.25 else None
            is_snapshot = self.chance.random() < 0.6
            self.write(number, is_snapshot=is_snapshot, transactions=killed_behind)
        elif action < 0.95:
            self.kill(number)
        elif action < 0.97:
            self.delete_taken(number)
        elif with_deletions:
            self.delete(number)

    def finish(self):
        """All is taken, all windows end, and all have results."""
        for _ in range(3):
            self.now_ms += 10**8
            for number in range(len(self.owned)):
                self.start(number)
                self.take(number, 10**6, 10**6)
                self.write(number, is_snapshot=True)

    def check(self):
        for owned in filter(None, self.owned):
            assert not any(each.unbalanced for each in owned.aggregator.counts.values())
            assert not any(each.unbalanced for each in owned.answers.counts.values())

    def total(self, stage, name, topic):
        """A count of all partitions together."""
        counts = [getattr(owned, stage).counts.get(topic) for owned in self.owned]
        return sum(getattr(each, name) for each in counts if each)

    def results(self):
        """By partition in the order of their offsets."""
        for partition in range(len(self.owned)):
            yield from map(decode_result, self.log(self.queries.results_topic, partition))


def kind_of_query(query):
    """The name of its text."""
    return query.rstrip("0123456789")


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 4), st.booleans())
def test_counts_balance_after_each_step(seed, partitions, with_deletions):
    cluster = Cluster(random.Random(seed), partitions)
    for _ in range(150):
        cluster.step(with_deletions=with_deletions)
        cluster.check()
    cluster.finish()
    cluster.check()
    if with_deletions:
        return
    counted, begins, groups = Counter(), defaultdict(list), Counter()
    for result in cluster.results():
        kind = kind_of_query(result.query)
        if result.kind is ResultKind.FINAL:
            counted["views" if kind == "other-topic" else "clicks"] += result.values["n"]
            if kind in BY_EVENT_TIME:
                begins[result.query].append(result.begin)
                facets = *result.facets.values(), result.is_other
                groups[result.query, result.begin, facets] += 1
    assert all(each == sorted(each) for each in begins.values())
    assert all(count == 1 for count in groups.values())
    for topic in TOPICS:
        records = (each for log in cluster.matched for each in log)
        partials = (each for each in records if isinstance(each, WindowPartial))
        sent = sum(each.events for each in partials if each.topic == topic)
        taken = ("ended", "late", "open", "faulty")
        assert sum(cluster.total("aggregator", name, topic) for name in taken) == sent
        answered = cluster.total("answers", "answered", topic)
        waiting = cluster.total("answers", "waiting", topic)
        assert answered + waiting == cluster.total("aggregator", "ended", topic)
        assert counted[topic] == answered


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 4), st.booleans())
def test_a_record_that_is_lost_is_told_by_as_much(seed, partitions, among_ended):
    cluster = Cluster(random.Random(seed), partitions)
    for number in range(150):
        if number == 50:
            queries = cluster.queries
            cluster.loses = queries.ended_topic if among_ended else queries.matched_topic
        cluster.step(with_deletions=False)
    cluster.finish()
    assume(cluster.lost)
    _, topic, matches = cluster.lost
    stage = "answers" if among_ended else "aggregator"
    assert cluster.total(stage, "missing_records", topic) == matches
    assert sum(cluster.total(stage, "unbalanced", topic) for topic in TOPICS) == matches
