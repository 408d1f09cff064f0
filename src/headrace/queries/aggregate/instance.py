"""One instance of the aggregate stage, from its start to its end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException

from headrace.errors import BrokerUnreachableError, RecordsDeletedError
from headrace.kafka.broker_errors import Meaning, meaning
from headrace.kafka.client import ClientConfig, consumer
from headrace.kafka.cluster import KafkaCluster
from headrace.kafka.lost_brokers import BrokersLostError, IdleCheck
from headrace.kafka.transactions import TransactionFencedError, TransactionUnsettledError
from headrace.model import EventSchema, TopicPartition
from headrace.queries.aggregate.owned import OwnedPartition
from headrace.queries.aggregate.plan import Plans
from headrace.queries.aggregate.quiet import QuietTopics
from headrace.queries.declaration import StandingQueries
from headrace.queries.matched import Tick, decode_matched

_LOG = logging.getLogger("headrace.queries")
SNAPSHOT_SECONDS = 5.0
_TAKE_SECONDS = 0.1
_MAX_RECORDS = 2_000
_LOOK_SECONDS = 1.0
_RESTART_SECONDS = 1.0
_READING = {"auto.offset.reset": "earliest", "fetch.wait.max.ms": "100"}
_INTERRUPTIONS = (
    BrokersLostError,
    BrokerUnreachableError,
    TransactionFencedError,
    TransactionUnsettledError,
)


@dataclass(frozen=True)
class AggregatorStatus:
    """How an instance is doing.

    Attributes:
        queries: name of the standing queries.
        partitions: that it has.
        records: that it has taken since its start.
        results: that it has written since its start.
        windows: that are open.
        late: late events, by query.
        event_us: the time of events, by topic, in microseconds since 1970.
        faulty: queries whose records can't be added up, with the reason.
        waiting: why it does nothing; empty: it does.
    """

    queries: str
    partitions: tuple[int, ...] = ()
    records: int = 0
    results: int = 0
    windows: int = 0
    late: Mapping[str, int] = field(default_factory=dict)
    event_us: Mapping[str, int] = field(default_factory=dict)
    faulty: Mapping[str, str] = field(default_factory=dict)
    waiting: str = ""


class AggregatorInstance:
    """Adds up the windows of some partitions of the matched topic.

    Args:
        config: librdkafka's settings of the cluster.
        queries: whose windows these are.
        schemas: of the events of topics, by name.
        partitions: of the matched topic.
    """

    def __init__(
        self,
        config: ClientConfig,
        queries: StandingQueries,
        schemas: Mapping[str, EventSchema],
        partitions: Sequence[int],
    ) -> None:
        self._config, self._queries = config, queries
        self._plans = Plans(schemas)
        self._partitions = tuple(partitions)
        self._owned: dict[int, OwnedPartition] = {}
        self._quiet = QuietTopics()
        self._ending = threading.Event()
        self._records = self._results = 0
        self._waiting = "it begins"

    def stop(self) -> None:
        """Ends it: what is there is written first. From any thread."""
        self._ending.set()

    def status(self) -> AggregatorStatus:
        """Returns how it is doing. On its thread."""
        late: dict[str, int] = {}
        event_us: dict[str, int] = {}
        faulty: dict[str, str] = {}
        for owned in self._owned.values():
            faulty |= owned.aggregator.faulty
            for query, count in owned.aggregator.late.items():
                late[query] = late.get(query, 0) + count
            for topic, reached_us in owned.aggregator.event_us.items():
                event_us[topic] = min(reached_us, event_us.get(topic, reached_us))
        return AggregatorStatus(
            queries=self._queries.name,
            partitions=tuple(self._owned),
            records=self._records,
            results=self._results,
            windows=sum(owned.aggregator.windows for owned in self._owned.values()),
            late=late,
            event_us=event_us,
            faulty=faulty,
            waiting=self._waiting,
        )

    def run(self, observe: Callable[[AggregatorStatus], None]) -> None:
        """Runs until it is stopped; what passes by itself is waited for.

        Args:
            observe: is called several times a second.

        Raises:
            HeadraceError, KafkaException: what does not pass by itself.
        """
        while not self._ending.is_set():
            try:
                self._run(observe)
            except _INTERRUPTIONS as error:
                self._waiting = str(error) or type(error).__name__
                _LOG.warning("%s: waits: %s", self._queries.name, self._waiting)
                observe(self.status())
                self._ending.wait(_RESTART_SECONDS)
            finally:
                self._close()
        observe(self.status())

    def _run(self, observe: Callable[[AggregatorStatus], None]) -> None:
        for partition in self._partitions:
            self._owned[partition] = OwnedPartition(
                self._config, self._queries, partition, self._plans
            )
        self._waiting = ""
        reader = consumer(self._config, "headrace.aggregate", _READING)
        try:
            reader.assign(self._starts())
            self._take_until_stopped(reader, observe)
            for owned in self._owned.values():
                owned.snapshot()
        finally:
            reader.close()

    def _starts(self) -> list[confluent_kafka.TopicPartition]:
        """Returns where to go on, of each partition.

        Raises:
            RecordsDeletedError: if the next record is not there any more.
        """
        topic = self._queries.matched_topic
        live = KafkaCluster(self._config).live(topic)
        starts = []
        for number, owned in self._owned.items():
            first, offset = live.earliest[number], owned.aggregator.offset
            if 0 < offset < first:
                raise RecordsDeletedError(str(TopicPartition(topic, number)), offset)
            starts.append(confluent_kafka.TopicPartition(topic, number, max(first, offset)))
        return starts

    def _take_until_stopped(
        self,
        reader: confluent_kafka.Consumer,
        observe: Callable[[AggregatorStatus], None],
    ) -> None:
        idle_check = IdleCheck(self._config)
        snapshot_at = look_at = time.monotonic()
        while not self._ending.is_set():
            messages = reader.consume(_MAX_RECORDS, _TAKE_SECONDS)
            if messages:
                idle_check.received()
            else:
                idle_check.check(reader)
            for message in messages:
                self._take(message)
            now = time.monotonic()
            if now >= look_at:
                look_at = now + _LOOK_SECONDS
                self._go_on_where_quiet()
            for owned in self._owned.values():
                owned.advance(_now_ms())
                if now < snapshot_at:
                    self._results += owned.write()
                else:
                    before = owned.results
                    owned.snapshot()
                    self._results += owned.results - before
            if now >= snapshot_at:
                snapshot_at = now + SNAPSHOT_SECONDS
            observe(self.status())

    def _take(self, message: confluent_kafka.Message) -> None:
        error = message.error()
        if error is not None:
            if meaning(error) not in {Meaning.END, Meaning.UNREACHABLE, Meaning.TRANSIENT}:
                raise KafkaException(error)
            return
        now_ms = _now_ms()
        try:
            record = decode_matched(message.value() or b"")
        except ValueError as error:
            _LOG.error("%s is left out: it is no matched record: %s", _place(message), error)
            return
        if isinstance(record, Tick):
            self._quiet.take(record, now_ms)
        self._owned[_number(message)].take(record, _offset(message), now_ms)
        self._records += 1

    def _go_on_where_quiet(self) -> None:
        """Time goes on in topics without new events, which are asked for their ends."""
        for topic in self._quiet.topics:
            partitions = KafkaCluster(self._config).live(topic, with_earliest=False).latest
            reached_us = self._quiet.event_us(topic, partitions, _now_ms())
            if reached_us is not None:
                for owned in self._owned.values():
                    owned.go_on(topic, reached_us, _now_ms())

    def _close(self) -> None:
        for owned in self._owned.values():
            owned.close()
        self._owned.clear()


def _place(message: Any) -> str:
    return f"{message.topic()}/{message.partition()}:{message.offset()}"


def _number(message: Any) -> int:
    return int(message.partition())


def _offset(message: Any) -> int:
    return int(message.offset())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
