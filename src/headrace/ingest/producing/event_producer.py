"""Sends events of a program to a project's topics."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TypeAlias

from confluent_kafka import Message

from headrace.errors import (
    AccountMissingError,
    EnvelopeTopicError,
    EventRejectedError,
    EventsNotDeliveredError,
    InvalidRecordError,
    NotDeclaredError,
    PartitionMissingError,
    RecordKeyMissingError,
    TopicMissingError,
)
from headrace.events.parsing.event_json import event_text
from headrace.ingest.events.json_limits import JsonLimits
from headrace.ingest.events.validation import Accepted, EventCheck, largest_message
from headrace.ingest.http.problem import ProblemDetails
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.headers import check_header_names
from headrace.kafka.write.counting_producer import CountingProducer
from headrace.model import RecordMetadata, Topic
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config
from headrace.settings import IngestSettings, Settings
from headrace.topics.schemas import written_with

Headers = Sequence[tuple[str, bytes]]
Partitioner: TypeAlias = Callable[[bytes | None, int], int]
"""Returns the partition of a record, from 0, by its key and the number of partitions."""
OnAcknowledged: TypeAlias = Callable[[RecordMetadata], object]
"""Called with the place of a record that all in-sync replicas have."""


class TopicCheck:
    """Checks, keys and places the events of one topic as ingest does.

    Args:
        topic: as declared; raw topics take any bytes.
        settings: the project's; limits are those of ``[ingest]``.
        account: whose events these are: their key where the topic declares none.

    Raises:
        AccountMissingError: if the topic places events by account, and there is none.
        EnvelopeTopicError: if the topic's records are envelopes.
        RecordKeyMissingError: if the topic is compacted, and its events hold no key.
    """

    def __init__(self, topic: Topic, settings: Settings, account: str = "") -> None:
        if topic.envelope is not None:
            raise EnvelopeTopicError(topic.name)
        if topic.event is not None and topic.is_keyed_elsewhere:
            raise RecordKeyMissingError(topic.name)
        if topic.event is not None and topic.needs_account and not account:
            raise AccountMissingError(topic.name)
        ingest = settings.ingest or IngestSettings()
        limits = JsonLimits(ingest.max_depth, ingest.max_keys, ingest.max_string_bytes)
        self._check: EventCheck | None = None
        if topic.event is not None:
            written = written_with([topic], settings).get(topic.name)
            applied = None
            if topic.takes_spreads:
                from headrace.topics.spreads.following import applied_spreads

                applied = applied_spreads(broker_config(settings), topic)
            self._check = EventCheck(topic, limits, time.time, written, applied)
        self._account = account

    def __call__(self, text: bytes, headers: Headers = ()) -> Accepted | ProblemDetails:
        """Returns the record that the event becomes, or why it is rejected.

        Raises:
            SpreadsUnknownError: if it is not known which spreads count for it.
        """
        if self._check is None:
            return Accepted(text, self._account.encode(), "", -1)
        accepted, rejected = self._check.batch([text], self._account, headers)
        return rejected[0] if rejected else accepted[0]


class EventProducer:
    """Sends events to topics of a project. :meth:`headrace.Project.producer` makes one.

    Events are checked, keyed and placed as ``headrace ingest`` does it. An event that does not
    fit its topic raises :class:`~headrace.EventRejectedError`, and nothing of it is sent.

    Order: events of one partition arrive in the order of :meth:`send`. Those of one key are in one
    partition, unless a ``partitioner`` of your own divides them.
    Delivery: :meth:`send` does not wait for Kafka, :meth:`flush` and the end of a ``with`` block
    do: then all in-sync replicas have every event, each once, or
    :class:`~headrace.EventsNotDeliveredError` is raised, and those that it counts may be there or
    not. A process that is killed loses the events that were not flushed.
    Places: ``on_acknowledged`` of an event is called once all in-sync replicas have it, within a
    later call of :meth:`send` or :meth:`flush`, and not for an event that is not delivered. What it
    raises comes out of that call; an event of that :meth:`send` was not sent.
    Threads: one at a time may use it.

    Attributes:
        acknowledged: number of events by topic that all in-sync replicas have.
    """

    def __init__(
        self, project: LoadedProject, account: str = "", partitioner: Partitioner | None = None
    ) -> None:
        """Connects to nothing before the first event.

        Args:
            project: declares the topics.
            account: whose events these are: their key where the topic declares none.
            partitioner: chooses partitions; None: as each topic declares it.

        Raises:
            BrokerUnreachableError: if the embedded broker is down.
        """
        self._project, self._account, self._partitioner = project, account, partitioner
        self._config = broker_config(project.settings)
        self._checks: dict[str, TopicCheck] = {}
        self._producers: dict[int, CountingProducer] = {}
        self._partitions: dict[str, int] = {}
        self._callbacks: dict[int, OnAcknowledged] = {}
        self._places: deque[tuple[OnAcknowledged, RecordMetadata]] = deque()
        self._events = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Waits for Kafka. An error of the ``with`` block comes before one of the delivery."""
        try:
            self.flush()
        except EventsNotDeliveredError:
            if error is None:
                raise

    @property
    def acknowledged(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for sender in self._producers.values():
            total.update(sender.acknowledged)
        return total

    def send(
        self,
        topic: Topic | str,
        event: object,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        on_acknowledged: OnAcknowledged | None = None,
    ) -> None:
        """Checks an event and hands it to the Kafka client; waits while its queue is full.

        Args:
            topic: a declared topic, or its name.
            event: an instance of the topic's event class, any object or mapping with its fields,
                or its JSON text. Floats that are not finite are null in JSON, and a time of an
                ``EpochMillis`` field has a zone and whole milliseconds. Of a raw topic: the
                record's value, as bytes.
            key: of a raw topic's record; events have the key that their topic declares.
            headers: of the record.
            on_acknowledged: called with the record's place, see :class:`RecordMetadata`.

        Raises:
            EventRejectedError: if it does not fit the topic, or a header's name is no text.
            AccountMissingError: if the topic places events by account, and the producer has none.
            SpreadsUnknownError: if it is not known which spreads count for it.
            EventsNotDeliveredError: if Kafka did not acknowledge an event that this would overtake.
            NotDeclaredError: if the project does not declare the topic.
            PartitionMissingError: if the partitioner chose one that the topic does not have.
            TopicMissingError: if the topic is not in Kafka.
            BrokerUnreachableError: if the broker does not respond within 15 seconds. After any of
                these errors, the event was not sent.
        """
        declared = self._declared(topic)
        if key is not None and declared.event is not None:
            raise ValueError(f"topic {declared.name!r} declares the key of its events")
        if declared.name not in self._checks:
            self._open(declared)
        # Not only at the flush: this event must not overtake an earlier one of its key.
        self._require_deliveries(declared.name)
        self._report_places()
        record = self._record(declared, event, headers)
        key = record.key or None if key is None else key
        partition = self._partition(declared.name, key, record.partition)
        self._events += 1
        if on_acknowledged is not None:
            self._callbacks[self._events] = on_acknowledged
        sender, label = self._producers[largest_message(declared)], self._events
        sender.send(
            declared.name, record.value, key, partition=partition, headers=headers, label=label
        )

    def _record(self, declared: Topic, event: object, headers: Headers) -> Accepted:
        try:
            check_header_names(headers)
        except UnicodeEncodeError as error:
            detail = f"header {error.object!r}: half of a surrogate pair has no bytes in UTF-8"
            raise EventRejectedError(declared.name, "bad-header-name", detail) from error
        try:
            text = event_text(declared, event)
        except InvalidRecordError as error:
            raise EventRejectedError(declared.name, error.reason, error.detail) from error
        record = self._checks[declared.name](text, headers)
        if isinstance(record, ProblemDetails):
            raise EventRejectedError(declared.name, record.code, record.detail)
        return record

    def _partition(self, topic: str, key: bytes | None, declared: int) -> int:
        if self._partitioner is None:
            return declared
        count = self._partitions[topic]
        partition = self._partitioner(key, count)
        if not 0 <= partition < count:
            raise PartitionMissingError(topic, partition, count)
        return partition

    def _acknowledge(self, label: int, message: Message) -> None:
        if (callback := self._callbacks.pop(label, None)) is not None:
            place = RecordMetadata(message.topic(), message.partition(), message.offset())
            # Called later: what is raised within a delivery report is lost in the client library.
            self._places.append((callback, place))

    def _report_places(self) -> None:
        while self._places:
            callback, place = self._places.popleft()
            callback(place)

    def flush(self) -> None:
        """Waits until Kafka has acknowledged every event, for 3 minutes at most.

        Raises:
            EventsNotDeliveredError: if it has not acknowledged some of them.
        """
        for sender in self._producers.values():
            sender.drain()
        self._report_places()
        self._require_deliveries(", ".join(self._checks))

    def _declared(self, topic: Topic | str) -> Topic:
        name = topic.name if isinstance(topic, Topic) else topic
        if name not in self._project.topics:
            raise NotDeclaredError("topic", name, ", ".join(self._project.topics))
        return self._project.topics[name]

    def _open(self, topic: Topic) -> None:
        # Sending to a topic that is missing may create it, with the broker's defaults.
        live = describe(self._config, [topic.name]).get(topic.name)
        if live is None:
            raise TopicMissingError(topic.name)
        self._partitions[topic.name] = live.partitions
        # Topics of one limit share a client: the limit is a property of a client, not of a record.
        size = largest_message(topic)
        if size not in self._producers:
            self._producers[size] = CountingProducer(self._config, size, self._acknowledge)
        self._checks[topic.name] = TopicCheck(topic, self._project.settings, self._account)

    def _require_deliveries(self, topic: str) -> None:
        senders = self._producers.values()
        failures = [reason for sender in senders for reason in sender.failures.values()]
        if failures:
            raise EventsNotDeliveredError(topic, len(failures), failures[0])
