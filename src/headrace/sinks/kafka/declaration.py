"""The declaration of a topic that a pipeline writes to."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from headrace.errors import SinkError, TableMismatchError
from headrace.model import Guarantee, Metadata, Registered, Topic
from headrace.model.fault import Fault, is_a
from headrace.sinks.api import (
    DeclaredRows,
    PositionStore,
    Reprocessable,
    Sink,
    SinkContext,
    SinkDriver,
)
from headrace.sinks.kafka.columns import arrow_columns, declared_columns, differences

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.events.written import WrittenWith
    from headrace.settings import SchemaRegistrySettings, Secret

_GUARANTEES = (Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE)


@dataclass(frozen=True)
class Kafka(Sink, Reprocessable):
    """Sink: events of another topic; :mod:`headrace.sinks.kafka` has the contract.

    Attributes:
        topic: a topic that the project declares.
        guarantee: ``AT_LEAST_ONCE``: tasks send, all at the same time. ``EXACTLY_ONCE``: the driver
            sends the whole batch and its positions in one transaction, for readers of committed
            records.
    """

    topic: Topic
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE

    kind: ClassVar[str] = "kafka"
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

    def extra_for(self, settings: Mapping[str, Secret]) -> str:  # noqa: ARG002
        """Returns the extra of the topic's format."""
        record_format = self.topic.record_format
        return record_format.extra if isinstance(record_format, Registered) else ""

    def faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        """Yields everything wrong with the declaration."""
        if not is_a(self.topic, Topic) or not is_a(self.topic.name, str):
            yield Fault(f"Kafka.topic is {self.topic!r}", "a declared Topic")
            return
        if self.guarantee not in _GUARANTEES:
            message = f"Kafka.guarantee is {self.guarantee!r}"
            yield Fault(message, "Guarantee.AT_LEAST_ONCE or Guarantee.EXACTLY_ONCE")
        if self.topic.needs_account:
            yield Fault(
                f"Kafka: topic {self.topic.name!r} is partitioned by account, and rows have none",
                'ByAccount(account="FIELD"), or ByField, ByHash or ByKey',
            )
        if self.topic.event is not None and self.topic.is_keyed_elsewhere:
            message = f"Kafka: topic {self.topic.name!r} is compacted, and rows have no key for it"
            yield Fault(message, "declare a field as the topic's key")
        if rows.columns is not None and _is_readable(self.topic):
            for fault in differences(self.topic, declared_columns(rows)):
                message = f"Kafka: topic {self.topic.name!r}: {fault.message}"
                yield replace(fault, message=message)

    def position_store(self, context: SinkContext) -> PositionStore | None:
        """Returns the store of positions in their topic; None if it is at least once."""
        if self.guarantee is not Guarantee.EXACTLY_ONCE:
            return None
        from headrace.sinks.kafka.exactly_once import positions_topic
        from headrace.sinks.topic_positions import TopicPositions

        return TopicPositions(context.client, positions_topic(self.topic.name))

    def open(self, context: SinkContext, schema: pa.Schema) -> SinkDriver:
        """Compares the rows with the topic's class, and registers the schema of its events.

        Exactly once, it also creates the topic of positions, and fences an earlier run of the
        pipeline. At least once, no broker is asked.

        Raises:
            TableMismatchError: if at any depth a field of the event is not in the rows, or has
                another type there, or the rows have a field that the event lacks.
            SinkError: if the topic's format needs a schema registry, and the project has none.
            ExtraMissingError: if the extra of the topic's format is not installed.
            RegistryUnreachableError: if the schema registry does not answer.
            SchemaRejectedError: if it rejects the schema.
            SchemaMismatchError: if the newest schema of a Protobuf topic can't hold all events.
            SinkUnavailableError, BrokerUnreachableError: if the brokers do not answer.
            AuthorizationError: if an ACL is missing.
            TopicChangeError: if Kafka refuses the topic of positions.
        """
        return self._opened(context, schema, f"headrace.{self.target}.{context.pipeline}")

    def open_to_reprocess(
        self,
        context: SinkContext,
        schema: pa.Schema,
        event_id: str | None,  # noqa: ARG002
    ) -> SinkDriver:
        """Opens it as :meth:`open` does, and fences no run of the pipeline. Raises as that."""
        own_id = f"headrace.{self.target}.{context.pipeline}.reprocess"
        return self._opened(context, schema, own_id)

    def _opened(self, context: SinkContext, schema: pa.Schema, transactional_id: str) -> SinkDriver:
        for fault in differences(self.topic, arrow_columns(schema)):
            raise TableMismatchError(self.label, f"{fault.message}: {fault.remedy}")
        written = _written_with(self.topic, context.registry)
        client = dict(context.client)
        if self.guarantee is Guarantee.EXACTLY_ONCE:
            from headrace.sinks.kafka.exactly_once import ExactlyOnceDriver, ExactlyOnceWriter

            writers = functools.partial(
                ExactlyOnceWriter, self.topic, written=written, client=client
            )
            return ExactlyOnceDriver(self.topic, client, transactional_id, writers)
        from headrace.sinks.kafka.writer import KafkaDriver, TopicWriter

        return KafkaDriver(functools.partial(TopicWriter, self.topic, client, written=written))

    def reprocessing_fault(
        self,
        columns: Collection[str] | None,  # noqa: ARG002
        event_id: str | None,  # noqa: ARG002
    ) -> Fault | None:
        """Returns None: events are sent again with the ids that they had, as after a crash."""
        return None


def _is_readable(topic: Topic) -> bool:
    """Returns whether its class has a schema; a fault of the class is reported for the topic."""
    try:
        topic.schema  # noqa: B018 - it is made when it is asked for
    except Exception:  # noqa: BLE001 - annotations run the user's code
        return False
    return True


def _written_with(topic: Topic, registry: SchemaRegistrySettings | None) -> WrittenWith | None:
    """Returns what events are written with; None of formats without a schema."""
    from headrace.topics.registered_schemas import registered_schema

    if not isinstance(topic.record_format, Registered):
        return None
    if registry is None:
        why = f"its format is {topic.record_format}, and the project has no schema registry"
        raise SinkError(f"topic {topic.name}", why)
    return registered_schema(topic, registry)
