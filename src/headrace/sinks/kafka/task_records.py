"""The records of a task's rows, without those that the topic does not take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from headrace.model import Topic
from headrace.sinks.api import RejectedRow
from headrace.sinks.kafka.records import RecordsOf, batch_size_at_most, batch_size_of

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.events.written import WrittenWith
    from headrace.kafka.write.record import ProducerRecord


class TaskRecords:
    """Makes the records of the rows of one task.

    Args:
        topic: where they go.
        written: the schema that events are written with; None: their format has none.
        client: librdkafka's settings, for topics that take spreads.

    Attributes:
        max_bytes: the largest batch that the topic takes.
    """

    def __init__(
        self,
        topic: Topic,
        written: WrittenWith | None,
        client: Mapping[str, str] | None = None,
    ) -> None:
        from headrace.events.written import event_writer
        from headrace.kafka.admin.record_limits import max_batch_bytes

        applied = None
        if topic.takes_spreads and client is not None:
            from headrace.topics.spreads.following import applied_spreads

            applied = applied_spreads(client, topic)
        self._records = RecordsOf(topic, writer=event_writer(topic, written), applied=applied)
        self.max_bytes = max_batch_bytes(topic)

    def of(self, rows: pa.Table) -> tuple[dict[int, ProducerRecord], list[RejectedRow]]:
        """Returns a record by the index of each row that is an event, and the other rows."""
        records, rejected = self._records.of(rows)
        rejected += self._remove_too_large(records)
        return records, rejected

    def _remove_too_large(self, records: dict[int, ProducerRecord]) -> Iterator[RejectedRow]:
        """Removes the records that no batch of the topic has room for, and yields their rows."""
        large = [
            index
            for index, record in records.items()
            if batch_size_at_most(record) > self.max_bytes
        ]
        for index in large:
            if (size := batch_size_of(records[index])) > self.max_bytes:
                del records[index]
                sentence = f"a record of {size} bytes, the topic takes {self.max_bytes}"
                yield RejectedRow(index, "rejected-by-kafka", sentence)
