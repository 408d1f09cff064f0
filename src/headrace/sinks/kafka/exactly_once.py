"""Rows and positions of a batch in one transaction, which the driver sends.

Tasks make the records and hand them to the driver as pieces: a transaction belongs to one producer,
and those of tasks can't be committed together. Decision 48 says which other ways there are. How the
driver sends them, and what fences it: :mod:`headrace.sinks.batch_transactions`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from headrace.kafka.admin.record_limits import max_batch_bytes
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.table.changelog import ensure_changelog
from headrace.kafka.write.record import ProducerRecord
from headrace.model import Topic
from headrace.sinks.api import CommitResult, RejectedRow, SinkDriver, Transaction, WriterFactory
from headrace.sinks.batch_transactions import BatchTransactions
from headrace.sinks.kafka.task_records import TaskRecords
from headrace.sinks.topic_positions import TopicPositions

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.events.written import WrittenWith

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
        client: librdkafka's settings, for topics that take spreads.
    """

    def __init__(
        self,
        topic: Topic,
        task_id: str,
        written: WrittenWith | None = None,
        client: Mapping[str, str] | None = None,
    ) -> None:
        self._records = TaskRecords(topic, written, client)
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
        self._topic = topic.name
        recorded = TopicPositions(client, positions_topic(topic.name))
        self.positions = recorded
        ensure_changelog(client, positions_topic(topic.name))
        # A larger batch would be refused whole.
        config = {**client, "batch.size": str(max_batch_bytes(topic))}
        label = f"kafka {topic.name}"
        self._transactions = BatchTransactions(config, transactional_id, recorded, label)

    def commit(
        self,
        pieces: Sequence[str],
        transaction: Transaction,
        watermark_us: int,  # noqa: ARG002
    ) -> CommitResult:
        """See :class:`SinkDriver`; raises what :meth:`BatchTransactions.send` raises."""
        decoded = sorted(map(_PIECE.decode, pieces), key=lambda piece: (piece.task, piece.number))
        records = functools.partial(self._records, decoded)
        is_new = self._transactions.send(records, transaction)
        return CommitResult(is_new, sum(piece.records for piece in decoded))

    def discard(self, pieces: Sequence[str]) -> None:
        """Does nothing: records are sent only by a commit."""

    def close(self, max_wait_seconds: float) -> None:  # noqa: ARG002
        """Closes the producer, and aborts a transaction that was not committed."""
        self._transactions.close()

    def _records(self, pieces: Sequence[RecordPiece]) -> Iterator[ProducerRecord]:
        import pyarrow as pa

        for piece in pieces:
            content = pa.decompress(piece.content, piece.size, codec=_CODEC, asbytes=True)
            for record in _CONTENT.decode(content):
                yield ProducerRecord(self._topic, *record)
