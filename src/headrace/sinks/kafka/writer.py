"""Sends rows at least once: tasks do, and wait until all in-sync replicas have the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.errors import RecordRejectedError
from headrace.model import Topic
from headrace.sinks.api import (
    CommitResult,
    RejectedRow,
    SinkDriver,
    Transaction,
    WriterFactory,
)
from headrace.sinks.kafka.task_records import TaskRecords

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.events.written import WrittenWith
    from headrace.kafka.write.record import ProducerRecord


class KafkaDriver(SinkDriver):
    """Has nothing to commit: what the tasks sent is in the topic already."""

    def __init__(self, writers: WriterFactory) -> None:
        self.writers = writers

    def commit(
        self,
        pieces: Sequence[str],
        transaction: Transaction,  # noqa: ARG002
        watermark_us: int,  # noqa: ARG002
    ) -> CommitResult:
        """Counts the records; each piece is a number of them."""
        return CommitResult(is_new=True, rows=sum(map(int, pieces)))

    def discard(self, pieces: Sequence[str]) -> None:
        """Can't take anything back: the records will be there again."""

    def close(self, max_wait_seconds: float) -> None:
        """There is nothing open."""


class TopicWriter:
    """Sends the rows of one task, and waits for them at the end of each :meth:`write`.

    Args:
        topic: where to.
        client: librdkafka's settings.
        task_id: is of no use here.
        written: the schema that events are written with; None: their format has none.
    """

    def __init__(
        self,
        topic: Topic,
        client: Mapping[str, str],
        task_id: str,  # noqa: ARG002
        written: WrittenWith | None = None,
    ) -> None:
        self._client = client
        self._records = TaskRecords(topic, written, client)
        self._sent = 0

    def write(self, rows: pa.Table) -> list[RejectedRow]:
        """Sends every row that is an event; returns the others.

        Raises:
            TopicMissingError: if the topic does not exist.
            AuthorizationError: if an ACL is missing.
            BrokerUnreachableError: if no broker answers within three minutes.
            SpreadsUnknownError: if it is not known which spreads of accounts count for a row.
            SinkError: if Kafka refuses a record for another reason.
        """
        records, rejected = self._records.of(rows)
        rejected += self._send(records)
        self._sent += rows.num_rows - len(rejected)
        return rejected

    def _send(self, records: Mapping[int, ProducerRecord]) -> list[RejectedRow]:
        """Sends records, in their order, and returns the rows that Kafka does not take."""
        # A larger batch would be refused whole, and later ones of its partition would pass it.
        refused = self._refused(records, {"batch.size": str(self._records.max_bytes)})
        if not refused:
            return []
        # A broker refuses whole batches: which record of it is at fault shows when it is alone.
        # What came after it is in the topic already, and is sent again: a newer state of a key must
        # not end before an older one.
        remaining = {index: record for index, record in records.items() if index >= min(refused)}
        alone = self._refused(remaining, {"batch.num.messages": "1"})
        return [RejectedRow(index, "rejected-by-kafka", reason) for index, reason in alone.items()]

    def _refused(
        self, records: Mapping[int, ProducerRecord], tuning: Mapping[str, str]
    ) -> dict[int, str]:
        """Sends records, and returns why Kafka refuses some as they are."""
        from headrace.kafka.write.sending import send_each

        refused: dict[int, str] = {}
        indices = list(records)
        for position, failure in send_each(self._client, records.values(), tuning).items():
            if not isinstance(failure, RecordRejectedError):
                raise failure
            refused[indices[position]] = failure.reason
        return refused

    def close(self) -> list[str]:
        """Returns at once: the tasks have sent everything."""
        return [str(self._sent)] if self._sent else []

    def abort(self) -> None:
        """What was sent stays: it will be there again."""
