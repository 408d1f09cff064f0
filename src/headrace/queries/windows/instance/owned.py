"""One partition of an instance: of the matched topic, and of the topic of ended windows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import high_watermarks
from headrace.kafka.write.own_records import OwnRecords
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.transactions import TransactionalProducer
from headrace.model import TopicPartition
from headrace.queries.declaration import StandingQueries
from headrace.queries.records.counts import ResultCounts, TopicCounts
from headrace.queries.records.ended import EndedRecord, PartitionClocks
from headrace.queries.records.matched import MatchedRecord, Tick, WindowId
from headrace.queries.records.result import QueryResult
from headrace.queries.records.snapshots import (
    Restored,
    WindowSnapshot,
    encode_markers,
    encode_silence,
    encode_snapshot,
)
from headrace.queries.windows.aggregate.partition import PartitionAggregator, WindowOutput
from headrace.queries.windows.aggregate.plan import Plans
from headrace.queries.windows.answer.partition import PartitionAnswers
from headrace.queries.windows.answer.silent import WatchedQueries
from headrace.queries.windows.instance.catch_up import PartitionCatchUp
from headrace.queries.windows.instance.quiet import QuietTopics
from headrace.queries.windows.instance.restoring import read_snapshots
from headrace.queries.windows.instance.topic_ends import TopicEnd

# At this interval, snapshots of the windows that have changed are written.
SNAPSHOT_SECONDS = 5.0
# At this interval, the clocks are written even if nothing else has changed.
_CLOCKS_SECONDS = 1.0


@dataclass
class WrittenOutput:
    """What a partition has written, and when; times are those of the monotonic clock, in seconds.

    Attributes:
        results: the number of results written.
        counts: the match counts, by topic, as of the last snapshot.
        result_counts: the match counts of ended windows, by topic, as they were last written.
        event_us: the event clocks that other partitions know, by topic.
        clocks_at: when clocks were written.
        snapshot_at: when a snapshot of the windows that had changed was written.
        base_at: when snapshots of all open windows were written.
        base: the offset of the snapshots topic at that time.
        since_ms: when the partition began to count ``matches``, in milliseconds since 1970.
        matches: the matches in windows that have ended, by partition of the results and topic.
    """

    results: int = 0
    counts: Mapping[str, TopicCounts] = field(default_factory=dict)
    result_counts: Mapping[str, ResultCounts] = field(default_factory=dict)
    event_us: Mapping[str, int] = field(default_factory=dict)
    clocks_at: float = 0.0
    snapshot_at: float = 0.0
    base_at: float = 0.0
    base: int = 0
    since_ms: int | None = None
    matches: dict[int, Counter[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, restored: Restored) -> WrittenOutput:
        """Returns what the snapshots say that former instances have written."""
        base = 0 if restored.position is None else restored.position.base
        if restored.answered is None:
            return cls(base=base)
        sent = restored.answered.sent.items()
        matches = {number: Counter(by_topic) for number, by_topic in sent}
        return cls(base=base, since_ms=restored.answered.since_ms, matches=matches)


class OwnedPartition:
    """Takes the records of a partition, and writes results and snapshots.

    Its parts, in the order in which a matched event passes them:

    1. ``aggregator`` adds matched records to open windows. A window ends by the event clock of its
       topic, which ``QuietTopics`` advances while the topic is idle, or by the wall clock, unless
       ``PartitionCatchUp`` is behind.
    2. What has ended is written to the topic of ended windows, to the partition of the query.
    3. ``answers`` takes the ended windows of this partition, and puts their results in order.
    4. :meth:`write` writes both outputs in one transaction, with the clocks by which ``answers`` of
       all partitions know that nothing earlier comes. A snapshot is in transactions after it.

    The producer comes before all of them: it fences the previous instance, so that the snapshots
    that are read then can't change any more. After a lost connection another producer continues,
    unless another instance has written snapshots: then :meth:`write` raises, as after any failure.

    Used on one thread. It can't be used after it has raised an error.

    Args:
        config: librdkafka's settings of the cluster.
        queries: the standing queries whose windows are added up.
        partition: the number of the partition, in all topics.
        plans: the plans of query texts.
        watched: the queries that have results for windows without events.
        on_wait: a function that is called each second while the brokers do not respond.

    Attributes:
        base_seconds: the interval of snapshots of all open windows, which bounds how many records
            an instance reads when it starts.
        max_transaction_bytes: a transaction times out after a minute; brokers take this many bytes
            within seconds.
        aggregator: the open windows.
        answers: the ended windows that wait for their turn in the results.
        written: what was written, and when.
        is_new: whether there is no snapshot, so that the partition starts at the first record.

    Raises:
        TransactionUnsettledError, BrokerUnreachableError: if the brokers do not respond.
        SnapshotDamagedError: if the snapshots do not fit together.
    """

    base_seconds = 60.0
    max_transaction_bytes = 16 * 2**20

    def __init__(
        self,
        config: ClientConfig,
        queries: StandingQueries,
        partition: int,
        plans: Plans,
        watched: WatchedQueries,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        self._config, self._queries, self._partition = config, queries, partition
        name = f"headrace.{queries.name}.aggregate.{partition}"
        # Each transaction has a record there, and no one else writes to it.
        written = partial(OwnRecords, config, [self._snapshots])
        self._producer = TransactionalProducer(config, name, on_wait, written=written)
        restored = read_snapshots(config, self._snapshots)
        self.aggregator = PartitionAggregator(partition, plans, restored)
        self.answers = PartitionAnswers(
            partition, queries.partitions, watched, restored.answered, restored.silence
        )
        self.written, self.is_new = WrittenOutput.of(restored), restored.position is None
        self._catch_up = PartitionCatchUp(TopicPartition(queries.matched_topic, partition))
        self._quiet = QuietTopics()
        reached_us = self.aggregator.event_us
        for tick in self.aggregator.ticks:
            # The tick has the event clock from before the topic was idle: the clock may be ahead.
            event_us = reached_us.get(tick.topic, tick.event_us)
            self._quiet.take(msgspec.structs.replace(tick, event_us=event_us), _monotonic_ms())
        self._ended: list[WindowOutput] = []
        self._answered: list[QueryResult] = []
        shown = restored.answered.clocks.get(partition) if restored.answered else None
        # The wall clock up to which windows have ended, as it is written to all partitions.
        self._clock_us = 0 if shown is None else shown.clock_us

    @property
    def _snapshots(self) -> TopicPartition:
        return TopicPartition(self._queries.snapshots_topic, self._partition)

    def stage(self, topic: str) -> PartitionAggregator | PartitionAnswers:
        """Returns the stage that takes the records of a topic."""
        return self.aggregator if topic == self._queries.matched_topic else self.answers

    def catch_up_to(self, offset: int) -> None:
        """Keeps windows open until matched records are taken up to the end of those committed."""
        self._catch_up.start(offset, time.monotonic())

    def take(self, record: MatchedRecord, offset: int, now_ms: int) -> None:
        """Takes the next matched record."""
        if isinstance(record, Tick):
            self._quiet.take(record, _monotonic_ms())
        self._keep(self.aggregator.take(record, offset, now_ms))

    def take_ended(self, record: EndedRecord, offset: int, written_ms: int) -> None:
        """Takes the next record of the topic of ended windows, with timestamp ``written_ms``."""
        self._answered += self.answers.take(record, offset, written_ms)

    def end_by_clock(self, now_ms: int) -> None:
        """Ends the windows that are due by the wall clock, unless records must be taken first."""
        if not self._is_behind():
            self._keep(self.aggregator.end_by_clock(now_ms))
            self._clock_us = now_ms * 1000

    def _is_behind(self) -> bool:
        return self._catch_up.is_behind(self.aggregator.offset, time.monotonic())

    @property
    def topics(self) -> list[str]:
        """The topics of events that have had a tick."""
        return self._quiet.topics

    def end_if_quiet(self, topic: str, end: TopicEnd, now_ms: int) -> None:
        """Moves the event clock on if the topic is idle, and ends the windows that are due.

        Args:
            topic: a topic of events that has had a tick.
            end: the end of the topic, as it was fetched recently.
            now_ms: the wall clock, in milliseconds since 1970.
        """
        reached_us = self._quiet.event_us(topic, end.live, end.asked_ms)
        if reached_us is not None:
            self._keep(self.aggregator.end_by_event_time(topic, reached_us, now_ms))

    def write(self, now_ms: int, heartbeat: Callable[[], None]) -> None:
        """Writes results and clocks in one transaction, and every 5 s a snapshot after it.

        Args:
            now_ms: the wall clock, in milliseconds since 1970.
            heartbeat: a function that is called before each transaction.
        """
        now, written = time.monotonic(), self.written
        shows_clocks = (
            bool(self._ended)
            or self.aggregator.event_us != written.event_us
            or now - written.clocks_at >= _CLOCKS_SECONDS
        )
        is_snapshot = now - written.snapshot_at >= SNAPSHOT_SECONDS
        if shows_clocks or is_snapshot or self._answered:
            self._send(now_ms, heartbeat, with_copies=is_snapshot)
            written.clocks_at, written.event_us = now, self.aggregator.event_us
        # A crash before the snapshot costs time, but no results: records since the last snapshot
        # are taken again, and the publish markers that were written with results keep windows
        # ended.
        if is_snapshot:
            self._send_snapshot(now_ms, heartbeat)

    def end(self, now_ms: int, heartbeat: Callable[[], None]) -> None:
        """Writes results, clocks and a snapshot, from which the next instance continues.

        Args:
            now_ms: the wall clock, in milliseconds since 1970.
            heartbeat: a function that is called before each transaction.
        """
        self.end_by_clock(now_ms)
        self._send(now_ms, heartbeat, with_copies=True)
        self._send_snapshot(now_ms, heartbeat)

    def close(self) -> None:
        """Drops output that was not written: the next instance starts at the last position."""
        self._producer.close()

    def _keep(self, output: WindowOutput) -> None:
        if output:
            self._ended.append(output)

    def _send(self, now_ms: int, heartbeat: Callable[[], None], *, with_copies: bool) -> None:
        heartbeat()
        self._producer.send(self._records(now_ms, with_copies=with_copies))
        self.written.results += len(self._answered)
        self._ended, self._answered = [], []

    def _send_snapshot(self, now_ms: int, heartbeat: Callable[[], None]) -> None:
        """Writes snapshots of the windows that changed, or of all, and then the positions.

        The snapshots of all windows may need several transactions. An instance that starts in
        between begins at the earlier positions, and each snapshot says which records it covers.
        """
        self.written.snapshot_at = time.monotonic()
        for records in _divided(self._snapshot(now_ms), self.max_transaction_bytes):
            heartbeat()
            self._producer.send(records)

    def _records(self, now_ms: int, *, with_copies: bool) -> Iterator[ProducerRecord]:
        for result in self._answered:
            key, value = result.query.encode(), msgspec.json.encode(result)
            partition = self._queries.partition_of(key)
            yield ProducerRecord(self._queries.results_topic, key, value, (), partition)
        for output in self._ended:
            yield from self._ended_windows(output)
        if with_copies:
            # Windows whose records expire soon are copied to the partition where they wait.
            size = 0
            for window in self.answers.copies(now_ms):
                key, value = window.results[0].query.encode(), msgspec.json.encode(window)
                yield ProducerRecord(self._queries.ended_topic, key, value, (), self._partition)
                size += len(value)
                if size >= self.max_transaction_bytes:
                    break  # further ones are in the next transaction
        if self.written.since_ms is None:
            self.written.since_ms = now_ms
        event_us, since_ms = self.aggregator.event_us, self.written.since_ms
        for partition in range(self._queries.partitions):
            matches = self.written.matches.get(partition, Counter())
            clocks = PartitionClocks(self._partition, event_us, self._clock_us, since_ms, matches)
            value = msgspec.json.encode(clocks)
            yield ProducerRecord(self._queries.ended_topic, None, value, (), partition)
        yield self._answered_position()
        for silence in encode_silence(self.answers.changed_silence()):
            yield self._record(None, silence)

    def _ended_windows(self, output: WindowOutput) -> Iterator[ProducerRecord]:
        for window in output.windows:
            key = window.results[0].query.encode()
            partition = self._queries.partition_of(key)
            for part in window.parts():
                value = msgspec.json.encode(part)
                yield ProducerRecord(self._queries.ended_topic, key, value, (), partition)
            if window.matches:
                sent = self.written.matches.setdefault(partition, Counter())
                sent[window.topic] += window.matches
        for marker in output.ended:
            yield self._record(marker.id, msgspec.json.encode(marker))
        for snapshot in output.emitted:
            yield from self._window(snapshot)

    def _snapshot(self, now_ms: int) -> Iterator[list[ProducerRecord]]:
        """Yields the records of a snapshot, in lists that must each be in one transaction."""
        written = self.written
        is_base = written.snapshot_at - written.base_at >= self.base_seconds
        if is_base:
            # No other producer writes to the partition, so all that follows is after this offset.
            written.base = high_watermarks(self._config, [self._snapshots])[self._snapshots]
            for markers in encode_markers(self.aggregator.remembered()):
                yield [self._record(None, markers)]
            for silence in encode_silence(self.answers.changed_silence(all_queries=True)):
                yield [self._record(None, silence)]
        for snapshot in self.aggregator.changed(all_windows=is_base):
            yield self._window(snapshot)
        may_forget = not self._is_behind()
        position = self.aggregator.position(written.base, now_ms, may_forget=may_forget)
        written.counts = position.counts
        # Both positions, since an instance that starts reads from the base on.
        yield [self._record(None, msgspec.json.encode(position)), self._answered_position()]
        if is_base:
            written.base_at = time.monotonic()

    def _answered_position(self) -> ProducerRecord:
        event_us, since_ms = self.aggregator.event_us, self.written.since_ms or 0
        position = self.answers.position(event_us, since_ms, self.written.matches)
        self.written.result_counts = position.counts
        return self._record(None, msgspec.json.encode(position))

    def _window(self, snapshot: WindowSnapshot) -> list[ProducerRecord]:
        return [self._record(snapshot.id, part) for part in encode_snapshot(snapshot)]

    def _record(self, window: WindowId | None, value: bytes) -> ProducerRecord:
        key = None if window is None else "/".join(map(str, window)).encode()
        return ProducerRecord(self._queries.snapshots_topic, key, value, (), self._partition)


def _divided(
    records: Iterable[list[ProducerRecord]], max_bytes: int
) -> Iterator[list[ProducerRecord]]:
    """Yields the records of each transaction, of a limited size; it never splits a list."""
    transaction: list[ProducerRecord] = []
    size = 0
    for group in records:
        transaction += group
        size += sum(len(record.value or b"") for record in group)
        if size >= max_bytes:
            yield transaction
            transaction, size = [], 0
    if transaction:
        yield transaction


def _monotonic_ms() -> int:
    return int(time.monotonic() * 1000)
