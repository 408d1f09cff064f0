"""Topics that tasks send to: what they would refuse is refused before a transaction has it."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import defaultdict
from datetime import timedelta
from typing import TypeAlias

import msgspec
from confluent_kafka import KafkaException

from headrace.errors import AuthorizationError, HeadraceError, RecordRejectedError
from headrace.kafka.admin.propagation import until_known
from headrace.kafka.admin.record_limits import BROKERS_MAX_MESSAGE_BYTES
from headrace.kafka.admin.topics import topic_settings
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.write.record import ProducerRecord, weight_of
from headrace.workers.lanes.sender import Sent
from headrace.workers.timing import WorkerTiming

_LOG = logging.getLogger("headrace.workers")
_KNOWN_WITHIN = timedelta(seconds=30)


class OutputTopic(msgspec.Struct, frozen=True):
    """A topic, as it is when something is sent to it first.

    Attributes:
        topic: its name.
        partitions: how many it has.
        max_bytes: of a batch of records, its ``max.message.bytes``.
        is_compacted: it takes no record without a key.
    """

    topic: str
    partitions: int
    max_bytes: int = BROKERS_MAX_MESSAGE_BYTES
    is_compacted: bool = False

    def fault(self, record: ProducerRecord, size: int) -> RecordRejectedError | None:
        """Returns why the topic takes no such record, of so many bytes; ``None``: it does."""
        if record.partition >= self.partitions:
            reason = f"it has {self.partitions} partitions, and none of number {record.partition}"
        elif size > self.max_bytes:
            reason = f"{size} bytes, and max.message.bytes of the topic is {self.max_bytes}"
        elif self.is_compacted and record.key is None:
            reason = "no key, and cleanup.policy of the topic is compact"
        else:
            return None
        return RecordRejectedError(self.topic, reason)


_Waiting: TypeAlias = tuple[ProducerRecord, Sent]


class OutputTopics:
    """The topics that an instance has sent to. On the event loop.

    A record that is refused within a transaction would abort it, with those of all others, again
    and again. So a send is confirmed when its topic is known to take the record.
    """

    def __init__(self, config: ClientConfig, timing: WorkerTiming = WorkerTiming()) -> None:
        self._config, self._timing = config, timing
        self._known: dict[str, OutputTopic] = {}
        self._waiting: defaultdict[str, list[_Waiting]] = defaultdict(list)
        self._lookups: set[asyncio.Task[None]] = set()

    @property
    def batch_bytes(self) -> int:
        """The size of a batch that each of the topics takes."""
        limits = (topic.max_bytes for topic in self._known.values())
        return min(limits, default=BROKERS_MAX_MESSAGE_BYTES)

    def check(self, record: ProducerRecord, sent: Sent) -> None:
        """Has the sends of ``sent`` hold a record, or fail: at once, or when its topic is known."""
        known = self._known.get(record.topic)
        if known is not None:
            self._end(known, (record, sent))
            return
        self._waiting[record.topic].append((record, sent))
        if len(self._waiting[record.topic]) == 1:
            task = asyncio.get_running_loop().create_task(self._look_up(record.topic))
            self._lookups.add(task)
            task.add_done_callback(self._lookups.discard)

    async def _look_up(self, topic: str) -> None:
        error: Exception | None = None
        try:
            self._known[topic] = await asyncio.to_thread(self._described, topic)
        except (HeadraceError, KafkaException) as failure:
            error = failure
        known = self._known.get(topic)
        for waiting in self._waiting.pop(topic):
            if known is None:
                waiting[-1].end(error)
            else:
                self._end(known, waiting)

    def _end(self, known: OutputTopic, waiting: _Waiting) -> None:
        record, sent = waiting
        weight = weight_of(record)
        fault = known.fault(record, weight)
        if fault is None and sent.sends is not None:
            sent.sends.hold(record, weight)
        elif fault is not None:
            # It may have more partitions or another limit meanwhile: the next send asks.
            self._known.pop(record.topic, None)
        sent.end(fault)

    def _described(self, topic: str) -> OutputTopic:
        ask = functools.partial(describe, self._config, [topic])
        poll = self._timing.needed_topics_seconds
        [live] = until_known(ask, [topic], _KNOWN_WITHIN, poll).values()
        try:
            settings = topic_settings(self._config, topic)
        except (AuthorizationError, KafkaException) as error:
            _LOG.info("The settings of topic %s are not known: %s", topic, error)
            return OutputTopic(topic, live.partitions)
        max_bytes = int(settings.get("max.message.bytes", BROKERS_MAX_MESSAGE_BYTES))
        is_compacted = "compact" in settings.get("cleanup.policy", "")
        return OutputTopic(topic, live.partitions, max_bytes, is_compacted)
