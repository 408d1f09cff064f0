"""The task's half of a topic: rows in, records out, acknowledged by all in-sync replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from headrace.sinks.kafka.records import RecordsOf

if TYPE_CHECKING:
    import pyarrow as pa


class KafkaDriver(SinkDriver):
    """Has nothing to commit: what the tasks sent is there already."""

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
    """

    def __init__(self, topic: Topic, client: Mapping[str, str], task_id: str) -> None:  # noqa: ARG002
        self._client = client
        self._records = RecordsOf(topic)
        self._sent = 0

    def write(self, rows: pa.Table) -> list[RejectedRow]:
        """Sends every row that is an event; returns the others.

        Raises:
            TopicMissingError: the topic does not exist.
            AuthorizationError: an ACL is missing.
            BrokerUnreachableError: no answer within three minutes.
            SinkError: Kafka refuses a record for another reason.
        """
        from headrace.kafka.sending import send_each

        records, rejected = self._records.of(rows)
        failures = send_each(self._client, records.values())
        for index, failure in zip(records, _by_position(failures, len(records)), strict=True):
            if failure is None:
                continue
            if not isinstance(failure, RecordRejectedError):
                raise failure
            # A broker refuses whole batches: which record of it is at fault shows when it is alone.
            alone = send_each(self._client, [records[index]]).get(0)
            if isinstance(alone, RecordRejectedError):
                rejected.append(RejectedRow(index, "rejected-by-kafka", alone.reason))
            elif alone is not None:
                raise alone
        self._sent += rows.num_rows - len(rejected)
        return rejected

    def close(self) -> list[str]:
        """Everything is there already."""
        return [str(self._sent)] if self._sent else []

    def abort(self) -> None:
        """What was sent stays: it will be there again."""


def _by_position(failures: Mapping[int, Exception], count: int) -> Iterator[Exception | None]:
    return (failures.get(position) for position in range(count))
