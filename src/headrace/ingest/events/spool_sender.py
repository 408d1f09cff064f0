"""From the spool to Kafka: in order, and past records that Kafka rejects permanently."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.ingest.events.validation import largest_message
from headrace.ingest.spool.loader import SendResult
from headrace.ingest.spool.record import SpoolRecord
from headrace.kafka.admin.record_limits import MAX_MESSAGE_BYTES
from headrace.kafka.client.broker_errors import Meaning, delivery_failure, is_of_record, meaning
from headrace.kafka.client.clients import ClientConfig, producer
from headrace.model import Topic

_POLL_SECONDS = 0.1
_METADATA_SECONDS = 2.0
_PURGED_SECONDS = 5.0
_ENVELOPE_BYTES = 128  # what Kafka adds to a record, rounded up
_TUNING = {
    # A batch leaves when all of its chunk was handed in, by a flush; until then it lingers.
    "linger.ms": "1000",
    "message.max.bytes": str(MAX_MESSAGE_BYTES),
    "batch.size": str(MAX_MESSAGE_BYTES),
    "allow.auto.create.topics": "false",
}
_TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - Kafka's names, here and below
_LOG = logging.getLogger("headrace.ingest.spool")

_Place = tuple[str, int | None]
"""A topic and, where the record names it, a partition."""

_Failures = Mapping[int, KafkaError]
"""Why records, by their numbers, were not taken."""


class SpoolSender:
    """Sends records of the spool, by a producer apart from that of requests, on one thread.

    Records go in chunks: of each topic no more than it takes in one batch, and none while one is
    unanswered, so nothing overtakes what Kafka rejects. Kafka rejects whole batches: their records
    are repeated one at a time, and then the answer is about the record. Records of topics that are
    not served any more go one at a time too, since their limit is not known.

    Records wait for a topic or partition that does not exist, and for a right that is missing.
    What timed out is taken back from the producer before it is repeated. Only what was on the wire
    at that moment may be in its topic twice.

    Args:
        config: librdkafka's configuration of the cluster.
        topics: those that are served.
    """

    def __init__(self, config: ClientConfig, topics: Iterable[Topic]) -> None:
        self._config = config
        self._sizes = {topic.name: largest_message(topic) for topic in topics}
        self._missing: set[_Place] = set()
        self._wire: _Wire | None = None

    def send(self, records: Sequence[SpoolRecord], seconds: float) -> SendResult:
        """Returns Kafka's answers for the records, after little more than ``seconds`` at most."""
        deadline = time.monotonic() + seconds
        if self._wire is None or self._wire.ended:
            self._wire = _Wire(self._config)
        places = {_place(record) for record in records}
        try:
            # At each call, as a missing topic or partition may have been created.
            live = {topic: self._wire.partitions(topic) for topic in {topic for topic, _ in places}}
        except KafkaException as error:
            return SendResult(waiting=range(len(records)), reason=_text(error.args[0]))
        self._missing = {
            (topic, partition)
            for topic, partition in places
            if (known := live[topic]) is None or (partition is not None and partition not in known)
        }
        sendable = {
            n: record for n, record in enumerate(records) if _place(record) not in self._missing
        }
        return self._outcome(records, _sent(self._wire, self._chunks(sendable), deadline))

    def close(self) -> None:
        """Closes the connections."""
        self._wire = None

    def _chunks(self, records: Mapping[int, SpoolRecord]) -> Iterator[dict[int, SpoolRecord]]:
        chunk: dict[int, SpoolRecord] = {}
        used: Counter[str] = Counter()
        for number, record in records.items():
            # The limit of a topic that is not served any more is unknown: 0 sends its records one
            # by one.
            size, room = _bytes(record), self._sizes.get(record.topic, 0)
            if used[record.topic] and used[record.topic] + size > room:
                yield chunk
                chunk, used = {}, Counter()
            used[record.topic] += size
            chunk[number] = record
        if chunk:
            yield chunk

    def _outcome(self, records: Sequence[SpoolRecord], failures: _Failures) -> SendResult:
        rejected, waiting, reason = {}, [], ""
        for number, record in enumerate(records):
            failure = failures.get(number)
            if _place(record) in self._missing:
                final, why = False, f"{record.topic}: the topic or partition does not exist"
            elif failure is not None:
                final, why = is_of_record(failure), f"{record.topic}: {_text(failure)}"
            else:
                continue
            if final:
                rejected[number] = why
            else:
                waiting.append(number)
                reason = reason or why
        return SendResult(rejected, waiting, reason)


class _Wire:
    """A producer that is polled while records are on their way.

    Attributes:
        ended: by a fatal error; it accepts no more records.
    """

    def __init__(self, config: ClientConfig) -> None:
        def log_error(error: KafkaError) -> None:
            _LOG.warning("Kafka client: %s", error.str())

        self._producer: Producer = producer({**config, "error_cb": log_error}, _TUNING)
        self.ended = False

    def partitions(self, topic: str) -> Collection[int] | None:
        """Returns the partitions of a topic, from a broker; ``None`` if there is no such topic.

        Raises:
            KafkaException: if the broker does not respond.
        """
        metadata = self._producer.list_topics(topic, timeout=_METADATA_SECONDS).topics[topic]
        missing = metadata.error is not None and meaning(metadata.error) is Meaning.MISSING
        return None if missing else metadata.partitions.keys()

    def send(self, chunk: Mapping[int, SpoolRecord], deadline: float) -> dict[int, KafkaError]:
        """Returns why records were not taken; Kafka has those that it does not name."""
        reports: dict[int, KafkaError | None] = {}
        rejected: dict[int, KafkaError] = {}
        for number, record in chunk.items():
            # What follows a record that can't be handed in must not overtake it.
            failure = next(iter(rejected.values()), None) or self._handed(number, record, reports)
            if failure is not None:
                rejected[number] = failure
        handed = len(chunk) - len(rejected)
        if not self._settled(reports, handed, deadline):
            self._producer.purge()
            # The purge reports what it has failed, which takes another poll.
            self._settled(reports, handed, time.monotonic() + _PURGED_SECONDS)
        # Not even the purge has reported them: they are sent again.
        lost = {n: _TIMED_OUT for n in chunk if n not in reports and n not in rejected}
        return rejected | lost | {n: error for n, error in reports.items() if error is not None}

    def _handed(
        self, number: int, record: SpoolRecord, reports: dict[int, KafkaError | None]
    ) -> KafkaError | None:
        """Returns why a record can't be handed in; ``None``: its report will come."""
        try:
            self._producer.produce(
                record.topic,
                record.value,
                record.key,
                -1 if record.partition is None else record.partition,
                headers=list(record.headers),
                timestamp=record.timestamp_ms,
                on_delivery=lambda error, message: reports.__setitem__(
                    number, delivery_failure(error, message)
                ),
            )
        except BufferError:  # not waited for: the deadline is that of the whole call
            return KafkaError(KafkaError._QUEUE_FULL)  # noqa: SLF001
        except KafkaException as error:
            self.ended = self.ended or meaning(error.args[0]) is Meaning.FATAL
            return error.args[0]
        return None

    def _settled(
        self, reports: Mapping[int, KafkaError | None], count: int, deadline: float
    ) -> bool:
        """Returns whether every record that was handed in is reported, in time."""
        while len(reports) < count and time.monotonic() < deadline:
            try:
                self._producer.flush(_POLL_SECONDS)
            except Exception as error:  # noqa: BLE001 - whatever it is, the reports decide
                self.ended = True
                _LOG.warning("Fatal error of the spool's producer, creating another one: %s", error)
        return len(reports) == count


def _sent(
    wire: _Wire, chunks: Iterable[dict[int, SpoolRecord]], deadline: float
) -> dict[int, KafkaError]:
    """Sends chunks until one has to wait; those after it wait, too. Returns what was not taken."""
    failures: dict[int, KafkaError] = {}
    must_wait = False
    for chunk in chunks:
        failed = dict.fromkeys(chunk, _TIMED_OUT) if must_wait else wire.send(chunk, deadline)
        if len(chunk) > 1 and any(map(is_of_record, failed.values())):
            failed = _sent(wire, ({n: chunk[n]} for n in sorted(failed)), deadline)
        failures |= failed
        must_wait = not all(map(is_of_record, failed.values()))
    return failures


def _place(record: SpoolRecord) -> _Place:
    return record.topic, record.partition


def _bytes(record: SpoolRecord) -> int:
    headers = sum(len(name) + len(value) + 8 for name, value in record.headers)
    return _ENVELOPE_BYTES + len(record.value) + len(record.key or b"") + headers


def _text(error: KafkaError) -> str:
    is_unconfirmed = meaning(error) is Meaning.PURGED or error.code() == _TIMED_OUT.code()
    return "Kafka did not confirm in time" if is_unconfirmed else error.str()
