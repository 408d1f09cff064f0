"""A partition of the matched topic that this instance alone writes the windows of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from headrace.kafka.client import ClientConfig, consumer, earliest_offsets, high_watermarks
from headrace.kafka.range_reader import read_ranges
from headrace.kafka.sending import ProducerRecord
from headrace.kafka.transactions import TransactionalProducer
from headrace.model import OffsetRange, TopicPartition
from headrace.queries.aggregate.partition import PartitionAggregator, WindowOutput
from headrace.queries.aggregate.plan import Plans
from headrace.queries.aggregate.snapshots import Restored, encode_snapshot
from headrace.queries.aggregate.window import WindowId
from headrace.queries.declaration import StandingQueries
from headrace.queries.matched import MatchedRecord

_READING = {"auto.offset.reset": "earliest", "fetch.wait.max.ms": "100"}
_SILENCE_SECONDS = 90.0  # a transaction that was left open ends after a minute


class OwnedPartition:
    """Takes records, and writes what follows from them. Used on one thread, until it raises.

    Args:
        config: librdkafka's settings of the cluster.
        queries: whose windows these are.
        partition: of the matched topic.
        plans: of the texts of queries.
        now_ms: the clock, in milliseconds since 1970.

    Raises:
        TransactionUnsettledError, BrokerUnreachableError: if the brokers do not answer.
        SnapshotDamagedError: if the snapshots do not fit together.
    """

    def __init__(
        self, config: ClientConfig, queries: StandingQueries, partition: int, plans: Plans
    ) -> None:
        self._queries, self.partition = queries, partition
        # First: who had the partition before can write no more, so the snapshots stay as they are.
        name = f"headrace.{queries.name}.aggregate.{partition}"
        self._producer = TransactionalProducer(config, name)
        place = TopicPartition(queries.snapshots_topic, partition)
        self.aggregator = PartitionAggregator(plans, read_snapshots(config, place))
        self._pending: list[WindowOutput] = []
        self.results = 0

    def take(self, record: MatchedRecord, offset: int, now_ms: int) -> None:
        """Takes the next record."""
        self._keep(self.aggregator.take(record, offset, now_ms))

    def advance(self, now_ms: int) -> None:
        """Ends what ends by the clock."""
        self._keep(self.aggregator.advance(now_ms))

    def go_on(self, topic: str, event_us: int, now_ms: int) -> None:
        """Ends what ends by event time, where it goes on without events."""
        self._keep(self.aggregator.go_on(topic, event_us, now_ms))

    def write(self) -> int:
        """Writes results that are there; returns how many."""
        if not self._pending:
            return 0
        pending, self._pending = self._pending, []
        self._producer.send(self._records(pending))
        written = sum(len(each.results) for each in pending)
        self.results += written
        return written

    def snapshot(self) -> None:
        """Writes what is there, the windows that have changed, and the position."""
        pending, self._pending = self._pending, []
        self._producer.send(self._snapshot_records(pending))
        self.results += sum(len(each.results) for each in pending)

    def close(self) -> None:
        """Gives up what was not written: whoever is next begins at the last position."""
        self._producer.close()

    def _keep(self, written: WindowOutput) -> None:
        if written:
            self._pending.append(written)

    def _records(self, pending: Iterable[WindowOutput]) -> Iterator[ProducerRecord]:
        for written in pending:
            for result in written.results:
                value = msgspec.json.encode(result)
                yield ProducerRecord(self._queries.results_topic, result.query.encode(), value, ())
            for marker in written.ended:
                yield self._record(marker.id, msgspec.json.encode(marker))
            for snapshot in written.emitted:
                for part in encode_snapshot(snapshot):
                    yield self._record(snapshot.id, part)

    def _snapshot_records(self, pending: Iterable[WindowOutput]) -> Iterator[ProducerRecord]:
        yield from self._records(pending)
        for snapshot in self.aggregator.changed():
            for part in encode_snapshot(snapshot):
                yield self._record(snapshot.id, part)
        yield self._record(None, msgspec.json.encode(self.aggregator.position()))

    def _record(self, window: WindowId | None, value: bytes) -> ProducerRecord:
        key = None if window is None else "/".join(map(str, window)).encode()
        return ProducerRecord(self._queries.snapshots_topic, key, value, (), self.partition)


def read_snapshots(config: ClientConfig, partition: TopicPartition) -> Restored:
    """Returns what a partition of the snapshots holds, up to the very end.

    Raises:
        BrokerUnreachableError: if the brokers do not answer, or a transaction stays open.
    """
    start = earliest_offsets(config, [partition])[partition]
    end = high_watermarks(config, [partition])[partition]
    restored = Restored()
    reader = consumer(config, "headrace.snapshots", _READING)
    try:
        ranges = [OffsetRange(partition, start, end)]
        for chunk in read_ranges(reader, ranges, config, silence_limit_seconds=_SILENCE_SECONDS):
            restored.take(value for each in chunk.records if (value := each.value()) is not None)
    finally:
        reader.close()
    return restored
