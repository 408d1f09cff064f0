"""From the spool to Kafka: in order, and around what Kafka refuses for ever."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException

from headrace.ingest.kafka_answers import MISSING, REFUSALS
from headrace.ingest.spool import Outcome, SpoolRecord
from headrace.ingest.validation import largest_message
from headrace.kafka.client import LARGEST_MESSAGE_BYTES, ClientConfig, producer
from headrace.model import Topic

_POLL_SECONDS = 0.1
_METADATA_SECONDS = 2.0
_MISSING_SECONDS = 10.0
_PURGED_SECONDS = 5.0
_TUNING = {
    "linger.ms": "5",
    "allow.auto.create.topics": "false",
    # The first refusal ends the producer, so that nothing of a partition overtakes what is refused.
    # With more than one batch in flight, the broker takes the next one where it knows none yet.
    "enable.gapless.guarantee": "true",
    "max.in.flight.requests.per.connection": "1",
}
_ALONE = _TUNING | {
    "enable.gapless.guarantee": "false",
    "batch.num.messages": "1",
    "message.max.bytes": str(LARGEST_MESSAGE_BYTES),
}
_TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - Kafka's names, here and below
_TAKEN_BACK = {
    KafkaError._PURGE_INFLIGHT,  # noqa: SLF001
    KafkaError._PURGE_QUEUE,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
}
_LOG = logging.getLogger("headrace.ingest.spool")

_Place = tuple[str, int | None]
"""A topic and, where the record names it, a partition."""


class SpoolSender:
    """The loader's way to Kafka, apart from that of requests. Used from one thread.

    Records go in batches as large as their topic takes. Where Kafka refuses a batch, what it has
    not got is sent again, each record in a batch of its own: then the answer is about the record.
    So are records of topics that are not served any more, for nobody says what those take.

    What timed out is taken back from the producer before it is sent again. Only what was on the
    wire at that moment may be in its topic twice.

    Args:
        config: librdkafka's configuration of the cluster.
        topics: those that are served.
        missing_seconds: how long Kafka must say that a topic or partition is not there, before
            its records are refused: a broker that has just started may not know all of them.
    """

    def __init__(
        self,
        config: ClientConfig,
        topics: Iterable[Topic],
        missing_seconds: float = _MISSING_SECONDS,
    ) -> None:
        self._config, self._missing_seconds = config, missing_seconds
        self._sizes = {topic.name: largest_message(topic) for topic in topics}
        self._lanes: dict[int | None, _Lane] = {}
        self._missing_since: dict[_Place, float] = {}

    def send(self, records: Sequence[SpoolRecord], seconds: float) -> Outcome:
        """What Kafka made of the records; takes ``seconds`` and little more at most."""
        deadline = time.monotonic() + seconds
        try:
            self._look(records)
        except KafkaException as error:
            return Outcome(waiting=range(len(records)), reason=_text(error.args[0]))
        numbers = [n for n, record in enumerate(records) if not self._is_missing(record)]
        failures: dict[int, KafkaError] = {}
        for size, group in self._by_size(records, numbers).items():
            failures |= self._sent(size, {n: records[n] for n in group}, deadline)
        return self._outcome(records, failures)

    def close(self) -> None:
        """Lets go of the connections."""
        self._lanes.clear()

    def _look(self, records: Sequence[SpoolRecord]) -> None:
        """Which topics and partitions are there."""
        places = {_place(record) for record in records}
        lane = self._lane(self._sizes.get(records[0].topic))
        live = {topic: lane.partitions(topic) for topic in {topic for topic, _ in places}}
        for topic, partition in places:
            there = live[topic]
            if there is None or (partition is not None and partition not in there):
                self._missing_since.setdefault((topic, partition), time.monotonic())
            else:
                self._missing_since.pop((topic, partition), None)

    def _is_missing(self, record: SpoolRecord) -> bool:
        return _place(record) in self._missing_since

    def _is_gone(self, record: SpoolRecord) -> bool:
        since = self._missing_since.get(_place(record))
        return since is not None and time.monotonic() - since >= self._missing_seconds

    def _by_size(
        self, records: Sequence[SpoolRecord], numbers: Iterable[int]
    ) -> Mapping[int | None, Sequence[int]]:
        groups: dict[int | None, list[int]] = defaultdict(list)
        for number in numbers:
            groups[self._sizes.get(records[number].topic)].append(number)
        return groups

    def _sent(
        self, size: int | None, records: Mapping[int, SpoolRecord], deadline: float
    ) -> Mapping[int, KafkaError]:
        """Why records, by their numbers, were not taken."""
        failures = self._lane(size).send(records, deadline)
        if self._lane(size).ended:
            del self._lanes[size]
        if size is None or not any(map(_is_refusal, failures.values())):
            return failures
        return self._sent(None, {n: records[n] for n in sorted(failures)}, deadline)

    def _lane(self, size: int | None) -> _Lane:
        if size not in self._lanes:
            self._lanes[size] = _Lane(self._config, size)
        return self._lanes[size]

    def _outcome(
        self, records: Sequence[SpoolRecord], failures: Mapping[int, KafkaError]
    ) -> Outcome:
        refused, waiting, reason = {}, [], ""
        for number, record in enumerate(records):
            failure = failures.get(number)
            if self._is_missing(record):
                why = "the topic or partition is not there"
            elif failure is not None:
                why = _text(failure)
            else:
                continue
            why = f"{record.topic}: {why}"
            if self._is_gone(record) or (failure is not None and _is_refusal(failure)):
                refused[number] = why
            else:
                waiting.append(number)
                reason = reason or why
        return Outcome(refused, waiting, reason)


class _Lane:
    """A producer that is polled while records are on their way.

    Attributes:
        ended: by a fatal error; it takes nothing any more.
    """

    def __init__(self, config: ClientConfig, size: int | None) -> None:
        sizes = {"message.max.bytes": str(size), "batch.size": str(size)}
        tuning = _ALONE if size is None else _TUNING | sizes
        self._producer = producer({**config, "error_cb": _on_error}, tuning)
        self.ended = False

    def partitions(self, topic: str) -> Collection[int] | None:
        """Of a topic, from a broker; ``None``: there is no such topic.

        Raises:
            KafkaException: no answer.
        """
        found = self._producer.list_topics(topic, timeout=_METADATA_SECONDS).topics[topic]
        missing = found.error is not None and found.error.code() in MISSING
        return None if missing else found.partitions.keys()

    def send(self, records: Mapping[int, SpoolRecord], deadline: float) -> Mapping[int, KafkaError]:
        """Why records were not taken; all of those that are not named were."""
        reports: dict[int, KafkaError | None] = {}
        not_sent: dict[int, KafkaError] = {}
        for number, record in records.items():
            # What follows a record that can't be sent must not overtake it.
            failure = next(iter(not_sent.values()), None) or self._handed(number, record, reports)
            if failure is not None:
                not_sent[number] = failure
        self._wait(reports, len(records) - len(not_sent), deadline)
        if len(reports) + len(not_sent) < len(records):
            self._producer.purge()
            self._wait(reports, len(records) - len(not_sent), time.monotonic() + _PURGED_SECONDS)
        missing = {n: _TIMED_OUT for n in records if n not in reports and n not in not_sent}
        failed = {n: error for n, error in reports.items() if error is not None}
        return not_sent | missing | failed

    def _handed(
        self, number: int, record: SpoolRecord, reports: dict[int, KafkaError | None]
    ) -> KafkaError | None:
        """``None``: the record's report will come."""
        try:
            self._producer.produce(
                record.topic,
                record.value,
                record.key,
                -1 if record.partition is None else record.partition,
                headers=list(record.headers),
                timestamp=record.timestamp_ms,
                on_delivery=lambda error, _: reports.__setitem__(number, error),
            )
        except BufferError:
            return KafkaError(KafkaError._QUEUE_FULL)  # noqa: SLF001 - Kafka's name of it
        except KafkaException as error:
            return error.args[0]
        return None

    def _wait(self, reports: Mapping[int, KafkaError | None], count: int, deadline: float) -> None:
        while len(reports) < count and time.monotonic() < deadline:
            try:
                self._producer.poll(_POLL_SECONDS)
            except KafkaException as error:
                self.ended = True
                _LOG.info("the spool's producer ended: %s", error)


def _place(record: SpoolRecord) -> _Place:
    return record.topic, record.partition


def _is_refusal(error: KafkaError) -> bool:
    return error.code() in REFUSALS


def _text(error: KafkaError) -> str:
    return "Kafka did not confirm in time" if error.code() in _TAKEN_BACK else error.str()


def _on_error(error: KafkaError) -> None:
    _LOG.warning("kafka: %s", error.str())
