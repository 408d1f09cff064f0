"""Rows and positions of a batch in one transaction, which the driver sends.

Tasks make the records and hand them to the driver as pieces: a transaction belongs to one producer,
and those of tasks can't be committed together. Decision 48 says which other ways there are.

Fencing: a new producer of a transactional id ends what an earlier one has left open, and fences it.
It reads the positions after that, before it sends, so a batch is sent only where they are those
that it follows. A driver that was frozen finds itself fenced, and then other positions.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from headrace.errors import SinkError, SinkUnavailableError
from headrace.kafka.admin.record_limits import max_batch_bytes
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.table.changelog import ensure_changelog
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.transactions import (
    TRANSACTION_SECONDS,
    TransactionalProducer,
    TransactionFencedError,
    TransactionUnsettledError,
)
from headrace.model import Topic
from headrace.sinks.api import CommitResult, RejectedRow, SinkDriver, Transaction, WriterFactory
from headrace.sinks.kafka.task_records import TaskRecords
from headrace.sinks.topic_positions import TopicPositions

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.events.written import WrittenWith

_LOG = logging.getLogger("headrace.pipelines")
_CODEC = "lz4"
_Content: TypeAlias = list[
    tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]
]
"""Key, value, headers and partition of records, in their order."""


def positions_topic(topic: str) -> str:
    """Returns the name of the topic with the positions of pipelines that write to ``topic``."""
    return f"{topic}.positions"


class RecordPiece(msgspec.Struct, frozen=True):
    """Records of one :meth:`ExactlyOnceWriter.write`.

    Attributes:
        task: id of the task attempt; those of a batch sort as their tasks read.
        number: of the piece in its task, from 0.
        records: how many there are.
        size: of the content before it was compressed.
        content: the records, compressed.
    """

    task: str
    number: int
    records: int
    size: int
    content: bytes


# Made at import: msgspec crashes where several threads are the first to decode a class.
_PIECE = msgspec.json.Decoder(RecordPiece)
_CONTENT = msgspec.msgpack.Decoder(_Content)


class ExactlyOnceWriter:
    """Makes the records of a task's rows; sends none of them.

    Args:
        topic: where they go.
        task_id: of the attempt.
        written: the schema that events are written with; None: their format has none.
    """

    def __init__(self, topic: Topic, task_id: str, written: WrittenWith | None = None) -> None:
        self._records = TaskRecords(topic, written)
        self._task = task_id
        self._pieces: list[str] = []

    def write(self, rows: pa.Table) -> list[RejectedRow]:
        """Keeps a record of every row that is an event; returns the others."""
        import pyarrow as pa

        records, rejected = self._records.of(rows)
        if records:
            content = msgspec.msgpack.encode(
                [(r.key, r.value, r.headers, r.partition) for r in records.values()]
            )
            compressed = pa.compress(content, codec=_CODEC, asbytes=True)
            place = (self._task, len(self._pieces))
            piece = RecordPiece(*place, len(records), len(content), compressed)
            self._pieces.append(msgspec.json.encode(piece).decode())
        return rejected

    def close(self) -> list[str]:
        """Returns the records, in pieces."""
        return self._pieces

    def abort(self) -> None:
        """Does nothing: only the driver sends records."""


class ExactlyOnceDriver(SinkDriver):
    """Sends the records of a batch and its positions in one transaction.

    Args:
        topic: where the records go.
        client: librdkafka's settings of the cluster.
        transactional_id: of one writer: a second driver with it fences the first.
        writers: of the tasks.

    Raises:
        BrokerUnreachableError, SinkUnavailableError: if the brokers do not answer.
        AuthorizationError: if an ACL is missing.
        TopicChangeError: if Kafka refuses the topic of positions.
    """

    def __init__(
        self, topic: Topic, client: ClientConfig, transactional_id: str, writers: WriterFactory
    ) -> None:
        self.writers = writers
        self._topic, self._id = topic.name, transactional_id
        self._label = f"kafka {topic.name}"
        self._recorded = self.positions = TopicPositions(client, positions_topic(topic.name))
        ensure_changelog(client, positions_topic(topic.name))
        # A larger batch would be refused whole.
        size = {"batch.size": str(max_batch_bytes(topic)), "error_cb": self._on_error}
        self._config: dict[str, Any] = {**client, **size}
        self._may_come_late = self._is_checked = False
        # Before positions are read: this ends the open transaction of an earlier producer.
        with self._naming():
            self._producer: TransactionalProducer | None = self._opened()

    def commit(
        self,
        pieces: Sequence[str],
        transaction: Transaction,
        watermark_us: int,  # noqa: ARG002
    ) -> CommitResult:
        """See :class:`SinkDriver`.

        Raises:
            SinkUnavailableError: if the brokers do not answer: the outcome is unknown until the
                next driver has read the positions.
            SinkError: if other positions are recorded, the transaction takes more than a minute, or
                Kafka refuses a record: nothing is committed.
        """
        decoded = sorted(map(_PIECE.decode, pieces), key=lambda piece: (piece.task, piece.number))
        with self._naming():
            try:
                is_new = self._sent(decoded, transaction)
            except TransactionFencedError as error:
                # The other driver may have ended since: the positions say what it has sent.
                _LOG.warning("%s: fenced, reading the positions again: %s", self._label, error)
                is_new = self._sent(decoded, transaction)
        return CommitResult(is_new, sum(piece.records for piece in decoded))

    def discard(self, pieces: Sequence[str]) -> None:
        """Does nothing: records are sent only by a commit."""

    def close(self, max_wait_seconds: float) -> None:  # noqa: ARG002
        """Closes the producer, and aborts a transaction that was not committed."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _sent(self, pieces: Sequence[RecordPiece], transaction: Transaction) -> bool:
        """Sends a batch; returns False if the positions say that it was sent before."""
        try:
            producer = self._current()
            if not self._is_checked:
                known = self._recorded.versions(transaction.app_ids)
                if not transaction.follows(known, self._label):
                    return False
            producer.send(self._records(pieces, transaction))
        except BaseException:
            self.close(0.0)  # no transaction follows a failed one of the same producer
            raise
        self._is_checked = True
        return True

    def _current(self) -> TransactionalProducer:
        """Returns a producer none of whose requests can still be on their way.

        Where a connection failed, the client may have asked for the end of a transaction twice.
        Brokers can't distinguish the request that comes late from that for the end of the next
        transaction, half of which it would commit (KAFKA-17754), unless that has another epoch.
        """
        if self._producer is not None:
            self._producer.poll()  # errors that have come since the last batch
            if self._may_come_late:
                self.close(0.0)
        if self._producer is None:
            self._producer = self._opened()
        return self._producer

    def _opened(self) -> TransactionalProducer:
        self._may_come_late = self._is_checked = False
        return TransactionalProducer(self._config, self._id, on_wait=self._on_error)

    def _on_error(self, *_: object) -> None:
        self._may_come_late = True

    def _records(
        self, pieces: Sequence[RecordPiece], transaction: Transaction
    ) -> Iterator[ProducerRecord]:
        import pyarrow as pa

        for piece in pieces:
            content = pa.decompress(piece.content, piece.size, codec=_CODEC, asbytes=True)
            for record in _CONTENT.decode(content):
                yield ProducerRecord(self._topic, *record)
        yield from self._recorded.records(transaction.versions)

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Names what the producer raises as sinks do."""
        try:
            yield
        except TransactionUnsettledError as error:
            raise SinkUnavailableError(self._label, error.reason) from error
        except TransactionFencedError as error:
            reason = (
                f"another run of this pipeline writes, or a batch takes longer to send than "
                f"{TRANSACTION_SECONDS} s, and needs a lower max_records: {error}"
            )
            raise SinkError(self._label, reason) from error
