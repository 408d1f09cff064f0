"""One instance, from its start to its end."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import confluent_kafka
from confluent_kafka import KafkaException

from headrace.errors import BrokerUnreachableError
from headrace.kafka.client.broker_errors import Meaning, meaning
from headrace.kafka.client.clients import ClientConfig, consumer, reader_tuning
from headrace.kafka.client.lost_brokers import BrokersLostError, IdleCheck
from headrace.kafka.read.cluster import KafkaCluster
from headrace.kafka.read.log_cuts import Seen, cut_offset, epoch_of, find_cuts
from headrace.kafka.read.open_transactions import OPEN_TRANSACTION_SECONDS
from headrace.kafka.table.topic_table import TableFollower
from headrace.kafka.write.transactions import TransactionFencedError, TransactionUnsettledError
from headrace.model import EventSchema, TopicPartition
from headrace.queries.declaration import StandingQueries
from headrace.queries.records.ended import EndedRecord, PartitionClocks, WindowResults, decode_ended
from headrace.queries.records.matched import MatchedRecord, decode_matched
from headrace.queries.topics import ensure_query_topics
from headrace.queries.windows.aggregate.plan import Plans
from headrace.queries.windows.answer.silent import WatchedQueries
from headrace.queries.windows.instance.lease_holder import LeaseHolder
from headrace.queries.windows.instance.owned import OwnedPartition
from headrace.queries.windows.instance.reader_check import ReaderCheck, ReaderStalledError
from headrace.queries.windows.instance.restoring import OpenTransactionError
from headrace.queries.windows.instance.starts import (
    EndedWindowsDeletedError,
    deleted_error,
    place_stages,
    truncated_error,
)
from headrace.queries.windows.instance.status import QueryInstanceStatus
from headrace.queries.windows.instance.topic_ends import TopicEnds
from headrace.runtime.clock import now_in_ms
from headrace.service.status import State

_LOG = logging.getLogger("headrace.queries")
_MAX_RECORDS = 2_000
# Reads between two writes. One write of an instance with 64 partitions has 4,096 records of clocks.
_MAX_READS = 10
# After this number of failures in a row, an instance leaves its partitions to other instances,
# since the cause may be its own machine.
_MAX_FAILURES = 3
# If retention deletes records before they are taken, reading fails: they are not skipped.
_READING = {"auto.offset.reset": "error", "fetch.wait.max.ms": "100"}
_INTERRUPTIONS = (
    BrokersLostError,
    BrokerUnreachableError,
    EndedWindowsDeletedError,
    OpenTransactionError,
    ReaderStalledError,
    TransactionFencedError,
    TransactionUnsettledError,
)


@dataclass(frozen=True)
class InstanceTiming:
    """How long an instance waits.

    Attributes:
        take_seconds: one read waits this long for its records.
        wait_seconds: an idle instance checks at least this often whether it can continue.
        max_silence_seconds: a reader that gets nothing of a partition for longer is replaced.
    """

    take_seconds: float = 0.1
    wait_seconds: float = 0.5
    max_silence_seconds: float = OPEN_TRANSACTION_SECONDS


Observe: TypeAlias = Callable[[QueryInstanceStatus], None]


class AggregatorInstance:
    """Adds up windows and writes results for the partitions of its lease, or waits for a lease.

    Args:
        config: librdkafka's settings of the cluster.
        queries: the standing queries whose windows are added up.
        schemas: the event schemas of topics, by topic name.
        timing: how long it waits.
    """

    def __init__(
        self,
        config: ClientConfig,
        queries: StandingQueries,
        schemas: Mapping[str, EventSchema],
        timing: InstanceTiming = InstanceTiming(),
    ) -> None:
        self._config, self._queries, self._timing = config, queries, timing
        self._plans, self._topics = Plans(schemas), tuple(schemas)
        self._watched = WatchedQueries(self._plans, queries.partitions)
        self._owned: dict[int, OwnedPartition] = {}
        self._ending, self._has_news = threading.Event(), threading.Event()
        self._uncovered: tuple[int, ...] = ()
        self._records = self._results = self._failures = 0
        self._waiting = "it is starting"
        self._status = self._measured()

    def stop(self) -> None:
        """Stops the instance after it has written its output. May be called on any thread."""
        self._ending.set()
        self._has_news.set()

    def status(self) -> QueryInstanceStatus:
        """Returns the status that was observed last; it has ended with the instance."""
        return self._status

    def _show(self, observe: Observe) -> None:
        self._status = self._measured()
        observe(self._status)

    def _measured(self) -> QueryInstanceStatus:
        late: Counter[str] = Counter()
        unbalanced: Counter[str] = Counter()
        event_us: dict[str, int] = {}
        faulty: dict[str, str] = {}
        for owned in self._owned.values():
            faulty |= owned.aggregator.faulty
            late.update(owned.aggregator.late)
            for topic, counts in owned.written.counts.items():
                unbalanced[topic] += counts.unbalanced
            for topic, result_counts in owned.written.result_counts.items():
                unbalanced[topic] += result_counts.unbalanced
            # A topic is as far as in the partition that is furthest behind.
            for topic, reached_us in owned.aggregator.event_us.items():
                event_us[topic] = min(reached_us, event_us.get(topic, reached_us))
        return QueryInstanceStatus(
            self._queries.name,
            state=State.WAITING if self._waiting else State.RUNNING,
            reason=self._waiting,
            records=self._records,
            results=self._results + sum(owned.written.results for owned in self._owned.values()),
            windows=sum(owned.aggregator.windows for owned in self._owned.values()),
            owned=tuple(self._owned),
            uncovered=self._uncovered,
            late=dict(late),
            unbalanced=dict(unbalanced),
            event_ms={topic: time_us // 1000 for topic, time_us in event_us.items()},
            faulty=faulty,
        )

    def run(self, observe: Observe) -> None:
        """Retries transient errors until stopped.

        Args:
            observe: a function that is called with the status several times a second.

        Raises:
            HeadraceError, KafkaException: if an error is not transient.
        """
        if not self._topics_are_there(observe):
            return
        follower = TableFollower(
            self._config,
            self._queries.queries_topic,
            self._watched.take,
            on_ready=self._has_news.set,
        )
        try:
            # Partitions are claimed only when all queries are known: windows without events that
            # ended before would have no results.
            while not follower.ready and not self._ending.is_set():
                self._wait_for_news("the registered queries are being read", observe)
            if not self._ending.is_set():
                lease = LeaseHolder(self._config, self._queries, on_change=self._has_news.set)
                ends = TopicEnds(KafkaCluster(self._config).live_unless_open, self._topics)
                try:
                    while not self._ending.is_set():
                        lease.heartbeat()
                        self._uncovered = lease.uncovered
                        self._run_or_wait(lease, ends, observe)
                finally:
                    lease.close()
                    ends.close()
        finally:
            follower.close()

    def _topics_are_there(self, observe: Observe) -> bool:
        """Creates missing topics once brokers respond; returns ``False`` if it was stopped."""
        while not self._ending.is_set():
            try:
                ensure_query_topics(self._config, self._queries)
            except BrokerUnreachableError as error:
                self._wait(str(error), observe)
            else:
                return True
        return False

    def _run_or_wait(self, lease: LeaseHolder, ends: TopicEnds, observe: Observe) -> None:
        partitions = lease.partitions
        try:
            if partitions is not None:
                self._run(lease, partitions, ends, observe)
                return
            self._wait_for_news(lease.waiting, observe)
        except _INTERRUPTIONS as error:
            reason = str(error) or type(error).__name__
            _LOG.warning("%s: waits: %s", self._queries.name, reason)
            self._failures += 1
            if self._failures >= _MAX_FAILURES:
                lease.give_back()
            self._wait(reason, observe)
        finally:
            self._results += sum(owned.written.results for owned in self._owned.values())
            for owned in self._owned.values():
                owned.close()
            self._owned.clear()

    def _wait(self, reason: str, observe: Observe) -> None:
        self._show_waiting(reason, observe)
        self._ending.wait(self._timing.wait_seconds)

    def _wait_for_news(self, reason: str, observe: Observe) -> None:
        """Waits until the registry is read, the lease has changed, or the next check is due."""
        self._show_waiting(reason, observe)
        self._has_news.wait(self._timing.wait_seconds)
        self._has_news.clear()

    def _show_waiting(self, reason: str, observe: Observe) -> None:
        self._waiting = reason
        self._show(observe)

    def _run(
        self, lease: LeaseHolder, partitions: range, ends: TopicEnds, observe: Observe
    ) -> None:
        _LOG.info("%s: has partitions %s", self._queries.name, list(partitions))
        for partition in partitions:
            lease.heartbeat()
            self._owned[partition] = OwnedPartition(
                self._config,
                self._queries,
                partition,
                self._plans,
                self._watched,
                partial(self._show_waiting, "the brokers do not answer", observe),
            )
        reader = consumer(self._config, "headrace.aggregate", reader_tuning(self._config, _READING))
        try:
            reader.assign(place_stages(self._config, self._queries, self._owned))
            self._take_while_leased(reader, lease, ends, observe)
            if self._ending.is_set():
                for owned in self._owned.values():
                    owned.end(now_in_ms(), lease.heartbeat)
                self._show(observe)
        finally:
            reader.close()

    def _take_while_leased(
        self,
        reader: confluent_kafka.Consumer,
        lease: LeaseHolder,
        ends: TopicEnds,
        observe: Observe,
    ) -> None:
        idle_check = IdleCheck(self._config)
        reader_check = ReaderCheck(
            self._queries.ended_topic, self._owned, self._timing.max_silence_seconds
        )
        while not self._ending.is_set() and list(lease.partitions or ()) == list(self._owned):
            for messages in _at_hand(reader, self._timing.take_seconds):
                idle_check.check(reader, has_received=bool(messages))
                for message in messages:
                    self._take(message, reader_check)
            reader_check.check()
            self._uncovered = lease.uncovered
            # Without events no clock of a topic advances, and its last windows would stay open.
            for topic, end in ends.take().items():
                for owned in self._owned.values():
                    if topic in owned.topics:
                        owned.end_if_quiet(topic, end, now_in_ms())
            for owned in self._owned.values():
                # Both have one time: windows that have ended by then are written before it.
                at_ms = now_in_ms()
                owned.end_by_clock(at_ms)
                owned.write(at_ms, lease.heartbeat)
            self._failures, self._waiting = 0, ""
            self._show(observe)

    def _take(self, message: confluent_kafka.Message, reader_check: ReaderCheck) -> None:
        place = TopicPartition(message.topic() or "", int(message.partition() or 0))
        offset, error = int(message.offset() or 0), message.error()
        if error is not None:
            self._take_error(error, place, offset)
            return
        owned, value = self._owned[place.partition], message.value() or b""
        is_ended = place.topic == self._queries.ended_topic
        if is_ended:
            # Before it is decoded: a record of another program, too, shows that the reader reads.
            reader_check.received(place.partition)
        try:
            record: EndedRecord | MatchedRecord = (
                decode_ended(value, self._queries.partitions) if is_ended else decode_matched(value)
            )
        except ValueError as fault:
            _LOG.error(
                "Record %d of %s is left out: it is no record of headrace: %s",
                *(offset, place, fault),
            )
            return
        owned.stage(place.topic).note_seen(Seen(offset + 1, epoch_of(message)))
        if isinstance(record, WindowResults | PartitionClocks):
            owned.take_ended(record, offset, message.timestamp()[1])
        else:
            owned.take(record, offset, now_in_ms())
            self._records += 1

    def _take_error(
        self, error: confluent_kafka.KafkaError, place: TopicPartition, offset: int
    ) -> None:
        match meaning(error):
            case Meaning.END:
                # A transaction ends with a control record, which has an offset and is not read.
                self._owned[place.partition].stage(place.topic).skip_to(offset)
            case Meaning.NO_RECORD:
                stage = self._owned[place.partition].stage(place.topic)
                # A leader that was behind answers so, too, until its log is as long again.
                cuts = find_cuts(self._config, place.topic, {place.partition: stage.seen})
                for cut in cuts.values():
                    raise truncated_error(self._queries, place, cut)
                raise deleted_error(self._queries, place, stage.offset)
            case Meaning.TRUNCATED:
                raise truncated_error(self._queries, place, cut_offset(error) or 0)
            case Meaning.UNREACHABLE | Meaning.TRANSIENT:
                pass
            case _:
                raise KafkaException(error)


def _at_hand(
    reader: confluent_kafka.Consumer, seconds: float
) -> Iterator[list[confluent_kafka.Message]]:
    """Yields the records that are available, but at most ``_MAX_READS`` reads of them."""
    for _ in range(_MAX_READS):
        messages = reader.consume(_MAX_RECORDS, seconds)
        yield messages
        if len(messages) < _MAX_RECORDS:
            return
