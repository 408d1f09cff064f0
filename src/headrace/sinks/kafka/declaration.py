"""The declaration of a topic that a pipeline writes to."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.errors import SinkError
from headrace.model import ByAccount, EventSchema, FieldType, Metadata, Topic
from headrace.model.fault import Fault, is_a
from headrace.model.source import RECORD_COLUMNS
from headrace.sinks.api import (
    DeclaredRows,
    Guarantee,
    Reprocessable,
    Sink,
    SinkContext,
    SinkDriver,
)

if TYPE_CHECKING:
    import pyarrow as pa

_TIME_TYPES = frozenset({FieldType.TIMESTAMP, FieldType.MILLIS})


@dataclass(frozen=True)
class Kafka(Sink, Reprocessable):
    """Sink: events of another topic. At least once; :mod:`headrace.sinks.kafka` has the contract.

    Attributes:
        topic: a topic that the project declares.
    """

    topic: Topic

    kind: ClassVar[str] = "kafka"
    guarantee: ClassVar[Guarantee] = Guarantee.AT_LEAST_ONCE
    metadata: ClassVar[tuple[Metadata, ...]] = (
        Metadata.TOPIC,
        Metadata.PARTITION,
        Metadata.OFFSET,
        Metadata.EVENT_INDEX,
    )

    @property
    def target(self) -> str:
        """Name of the topic."""
        return str(getattr(self.topic, "name", self.topic))

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topic."""
        return (self.topic,)

    def faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        """Yields everything wrong with the declaration."""
        if not is_a(self.topic, Topic) or not is_a(self.topic.name, str):
            yield Fault(f"Kafka.topic is {self.topic!r}", "a declared Topic")
            return
        if isinstance(self.topic.partitioning, ByAccount):
            yield Fault(
                f"Kafka: topic {self.topic.name!r} is partitioned by account, and rows have none",
                "ByField, ByHash or ByKey",
            )
        if self.topic.event is not None and self.topic.is_keyed_elsewhere:
            message = f"Kafka: topic {self.topic.name!r} is compacted, and rows have no key for it"
            yield Fault(message, "declare a field as the topic's key")
        if rows.columns is None:
            return
        if self.topic.event is None:
            yield from self._raw_faults(rows)
            return
        schema = _schema(self.topic)
        if schema is not None:
            yield from _event_faults(schema, rows)

    def _raw_faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        if rows.columns and "value" not in rows.columns:
            remedy = "declare an event class for it, or add a step that makes the column"
            yield Fault(f"Kafka: raw topic {self.topic.name!r} needs a column 'value'", remedy)

    def open(self, context: SinkContext, schema: pa.Schema) -> SinkDriver:
        """Compares the rows with the topic's class; no broker is asked.

        Raises:
            SinkError: if a field of the event is no column of the rows, or has another type, or the
                rows have a column that is no field.
        """
        from headrace.sinks.kafka.records import problem
        from headrace.sinks.kafka.writer import KafkaDriver, TopicWriter

        if (reason := problem(self.topic, schema)) is not None:
            raise SinkError(f"topic {self.topic.name}", reason)
        return KafkaDriver(functools.partial(TopicWriter, self.topic, dict(context.client)))

    def reprocessing_fault(
        self,
        columns: Collection[str] | None,  # noqa: ARG002
        event_id: str | None,  # noqa: ARG002
    ) -> Fault | None:
        """Returns None: events are sent again with the ids that they had, as after a crash."""
        return None

    def open_to_reprocess(
        self,
        context: SinkContext,
        schema: pa.Schema,
        event_id: str | None,  # noqa: ARG002
    ) -> SinkDriver:
        """See :meth:`open`."""
        return self.open(context, schema)


def _schema(topic: Topic) -> EventSchema | None:
    """None where the class is faulty; that is told of the topic itself."""
    try:
        return topic.schema
    except Exception:  # noqa: BLE001 - annotations run the user's code
        return None


def _event_faults(schema: EventSchema, rows: DeclaredRows) -> Iterator[Fault]:
    columns = rows.columns or {}
    for field in schema.fields:
        if field.name not in columns:
            known = f"columns: {', '.join(columns)}"
            yield Fault(f"Kafka: {schema.name}.{field.name} is no column of the rows", known)
        elif not _fits(columns[field.name], field.type):
            types = f"{columns[field.name].value} in the rows, {field.type.value} in the event"
            yield Fault(f"Kafka: {schema.name}.{field.name} is a {types}")
    for name in columns:
        if name not in schema.names and name not in RECORD_COLUMNS:
            remedy = "add it to the class, or leave it out in a step"
            yield Fault(f"Kafka: column {name!r} is no field of {schema.name}", remedy)


def _fits(column: FieldType, field: FieldType) -> bool:
    return column is field or {column, field} <= _TIME_TYPES
