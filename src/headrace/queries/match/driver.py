"""The driver's half of a match stage: records, ticks and positions in one transaction."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.write.record import ProducerRecord
from headrace.model import TopicPartition
from headrace.queries.declaration import StandingQueries
from headrace.queries.match.writer import MatchPiece, MatchWriters
from headrace.queries.records.matched import Tick
from headrace.sinks.api import CommitResult, SinkDriver, Transaction
from headrace.sinks.batch_transactions import BatchTransactions
from headrace.sinks.topic_positions import TopicPositions

_LOG = logging.getLogger("headrace.queries")
_PIECE = msgspec.json.Decoder(MatchPiece)


class MatchDriver(SinkDriver):
    """Sends the records of a batch's tasks, its ticks and positions in one transaction.

    Raises:
        SinkUnavailableError: if the brokers do not answer.
    """

    def __init__(
        self, pipeline: str, client: ClientConfig, queries: StandingQueries, writers: MatchWriters
    ) -> None:
        self.writers = writers
        self._pipeline, self._queries, self._topic = pipeline, queries, writers.reader.topic
        self._label = f"queries {queries.name}"
        recorded = TopicPositions(client, queries.positions_topic)
        self.positions = recorded
        transactional_id = f"headrace.{queries.name}.match.{pipeline}"
        self._transactions = BatchTransactions(client, transactional_id, recorded, self._label)

    def commit(
        self,
        pieces: Sequence[str],
        transaction: Transaction,
        watermark_us: int,  # noqa: ARG002
    ) -> CommitResult:
        """See :class:`SinkDriver`; raises what :meth:`BatchTransactions.send` raises."""
        decoded = [_PIECE.decode(piece) for piece in pieces]
        registry = TopicPartition(self._queries.queries_topic, 0)
        tick = Tick(
            topic=self._topic,
            pipeline=self._pipeline,
            event_us=transaction.event_us,
            planned_ms=transaction.planned_ms,
            positions={place.partition: at for place, at in transaction.positions.items()},
            registry_offset=transaction.followed.get(registry, 0),
            topic_id=transaction.topic_ids.get(self._topic, ""),
            rules=rules_of(decoded, self._label),
        )
        records = functools.partial(self._records, decoded, tick)
        return CommitResult(
            is_new=self._transactions.send(records, transaction),
            rows=sum(piece.matches for piece in decoded),
            figures={"untimed": sum(piece.untimed for piece in decoded)},
        )

    def discard(self, pieces: Sequence[str]) -> None:
        """Does nothing: records are sent only by a commit."""

    def close(self, max_wait_seconds: float) -> None:  # noqa: ARG002
        """Closes the producer, and aborts a transaction that was not committed."""
        self._transactions.close()

    def _records(self, pieces: Sequence[MatchPiece], tick: Tick) -> Iterator[ProducerRecord]:
        topic = self._queries.matched_topic
        for piece in pieces:
            for name, value in piece.records:
                key = name.encode()
                # A declared partition: instances read no partitions that were added to the topic.
                partition = self._queries.partition_of(key)
                yield ProducerRecord(topic, key, bytes(value), (), partition)
        events = events_by_partition(pieces)
        # No ticks if no batch ends: without its checkpoint, a pipeline first commits versions.
        for partition in range(self._queries.partitions if tick.positions else 0):
            own = msgspec.structs.replace(tick, events=events[partition])
            yield ProducerRecord(topic, None, msgspec.json.encode(own), (), partition)


def events_by_partition(pieces: Sequence[MatchPiece]) -> Counter[int]:
    """Returns how many matches the pieces of a batch add, by partition of the matched topic."""
    events: Counter[int] = Counter()
    for piece in pieces:
        events.update(piece.events)
    return events


def rules_of(pieces: Sequence[MatchPiece], sink: str) -> str:
    """Returns the hash of the queries that the tasks of a batch had; empty if it has no pieces.

    If tasks had different queries, returns all hashes and logs an error. The batch is not refused,
    because that would stop all other queries, too.
    """
    hashes = " ".join(sorted({piece.rules for piece in pieces}))
    if " " in hashes:
        _LOG.error("%s: the tasks of a batch had different queries, of hashes %s", sink, hashes)
    return hashes
