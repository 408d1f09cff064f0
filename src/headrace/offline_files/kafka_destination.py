"""Lines into topics: events, dead letters and progress in one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import KafkaException

from headrace.errors import BrokerUnreachableError, LoaderRunningError, TopicMissingError
from headrace.ingest.events.json_limits import JsonLimits
from headrace.ingest.events.validation import Clock, EventCheck, largest_message
from headrace.kafka.admin.topics import ensure_dead_letters
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.dead_letters.letters import OFFLINE_FILES
from headrace.kafka.dead_letters.writer import dead_letter_records
from headrace.kafka.table.changelog import ensure_changelog
from headrace.kafka.table.topic_table import read_table
from headrace.kafka.write.own_records import OwnRecords
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.transactions import (
    TransactionalProducer,
    TransactionFencedError,
    TransactionUnsettledError,
)
from headrace.model import DeadLetter, Topic, TopicPartition
from headrace.model.topic import OFFLINE_FILES_TOPIC
from headrace.offline_files.destination import (
    UNKNOWN_TABLE,
    UnknownCommitStateError,
    require_known_table,
)
from headrace.offline_files.entry import Entry, RejectedEntry
from headrace.offline_files.progress import LoadProgress
from headrace.topics.spreads.following import applied_spreads

COUNTER = "counter"
_ID = "headrace.offline-files."


class KafkaDestination:
    """See :class:`Destination`. Reasons of its own: those of ``EventCheck``, and ``unknown-table``.

    The event is the row with its body decoded, and ``counter`` where the row has no such column.
    Its key is the field that the topic declares, and otherwise the project's id, or the source
    where the row has none. Lines of tables without a topic, and those whose table can't be read,
    are dead letters of the topic that holds the progress.

    Args:
        config: librdkafka's.
        source: whose counters these are; its transactions exclude another loader of it.
        topics: by table; each has an event class.
        check: limits of an event, and the clock that its time is compared with.
        version: headrace's, for dead letters.
        dry_run: send nothing, and exclude no other loader.
    """

    name = "Kafka"

    def __init__(
        self,
        config: ClientConfig,
        source: str,
        topics: Mapping[str, Topic],
        check: tuple[JsonLimits, Clock],
        version: str,
        *,
        dry_run: bool = False,
    ) -> None:
        self._config, self._source, self._version = config, source, version
        self._topics, self._dry_run = topics, dry_run
        self._checks = {
            table: EventCheck(topic, *check, None, applied_spreads(config, topic))
            for table, topic in topics.items()
        }
        self._producer: TransactionalProducer | None = None
        self._uncounted: frozenset[str] = frozenset()
        self._is_new = False
        self._seen: set[str] = set()
        self._with_letters: set[str] = set()

    def open(self) -> LoadProgress:
        self.close()
        try:
            if not self._dry_run:
                ensure_changelog(self._config, OFFLINE_FILES_TOPIC)
                self._producer = TransactionalProducer(
                    self._config, _ID + self._source, written=self._marked
                )
            return self._progress()
        except TransactionFencedError as error:
            raise LoaderRunningError(self._source) from error
        except TransactionUnsettledError as error:
            raise UnknownCommitStateError(error.reason) from error
        except (BrokerUnreachableError, KafkaException) as error:
            raise UnknownCommitStateError(str(error)) from error

    def write(
        self, batch: Sequence[Entry | RejectedEntry], progress: LoadProgress
    ) -> list[RejectedEntry]:
        """Raises TopicMissingError if a topic does not exist; dead-letter topics are created."""
        events: list[ProducerRecord] = []
        rejected: list[RejectedEntry] = []
        for entry in batch:
            verdict = entry if isinstance(entry, RejectedEntry) else self._event(entry)
            if isinstance(verdict, RejectedEntry):
                rejected.append(verdict)
            else:
                events.append(verdict)
        # Before anything is sent: a mistyped table would make dead letters of the whole source.
        if self._is_new:
            require_known_table(self.name, batch, rejected)
        if not self._dry_run:
            self._send(events, rejected, progress)
        self._is_new = False
        return rejected

    def close(self) -> None:
        """Abandons what was not committed."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _marked(self) -> OwnRecords:
        """Returns what shows that another loader of the source has written."""
        topic = describe(self._config, [OFFLINE_FILES_TOPIC])[OFFLINE_FILES_TOPIC]
        places = [TopicPartition(OFFLINE_FILES_TOPIC, number) for number in range(topic.partitions)]
        return OwnRecords(self._config, places, self._source.encode())

    def _progress(self) -> LoadProgress:
        table = read_table(self._config, OFFLINE_FILES_TOPIC, settled=True)
        counters = table.get(self._source.encode(), b"[]").decode()
        # A source is the key of its ranges, source/digest that of a line without a counter.
        prefix = f"{self._source}/".encode()
        uncounted = (key[len(prefix) :].decode() for key in table if key.startswith(prefix))
        progress = LoadProgress.from_json(self._source, counters, uncounted)
        self._uncounted, self._is_new = progress.uncounted, not progress.ranges
        return progress

    def _event(self, entry: Entry) -> ProducerRecord | RejectedEntry:
        topic = self._topics.get(entry.table)
        if topic is None:
            return _rejected(
                entry, UNKNOWN_TABLE, f"no topic is declared for table {entry.table!r}"
            )
        account, source = entry.account or self._source, self._source.encode()
        headers = ("source", source), (COUNTER, str(entry.counter).encode())
        accepted, problems = self._checks[entry.table].batch([_value(entry)], account, headers)
        if problems:
            return _rejected(entry, problems[0].code, problems[0].detail)
        [event] = accepted
        return ProducerRecord(topic.name, event.key, event.value, headers, event.partition)

    def _send(
        self, events: list[ProducerRecord], rejected: list[RejectedEntry], progress: LoadProgress
    ) -> None:
        if self._producer is None:
            raise UnknownCommitStateError("the producer is closed", rejected)
        try:
            self._require({record.topic for record in events})
            letters = self._letters(rejected)
            self._producer.send([*events, *letters, *self._marks(progress)])
        except TransactionFencedError as error:
            raise LoaderRunningError(self._source) from error
        except TransactionUnsettledError as error:
            raise UnknownCommitStateError(error.reason, rejected) from error
        except (BrokerUnreachableError, KafkaException) as error:
            raise UnknownCommitStateError(str(error), rejected) from error
        self._uncounted = progress.uncounted

    def _require(self, topics: set[str]) -> None:
        # Checked first: a producer would create the topic where brokers allow it, with their
        # defaults.
        unseen = topics - self._seen
        missing = sorted(unseen - describe(self._config, unseen).keys())
        if missing:
            raise TopicMissingError(missing[0])
        self._seen |= unseen

    def _letters(self, rejected: Iterable[RejectedEntry]) -> list[ProducerRecord]:
        letters = [self._letter(entry) for entry in rejected]
        origins = {
            topic.name: topic for topic in map(self._topic, {entry.table for entry in rejected})
        }
        unseen = origins.keys() - self._with_letters
        ensure_dead_letters(self._config, [origins[name] for name in unseen])
        self._with_letters |= unseen
        return dead_letter_records(self._config, letters, OFFLINE_FILES, self._version)

    def _letter(self, entry: RejectedEntry) -> DeadLetter:
        topic = self._topic(entry.table)
        facts = {
            "source": self._source,
            "file": entry.line.file,
            "line": str(entry.line.number),
            COUNTER: "" if entry.counter is None else str(entry.counter),
        }
        headers = tuple((name, value.encode()) for name, value in facts.items())
        value = entry.line.content[: largest_message(topic)]  # the limit of the topic
        nowhere = TopicPartition(topic.name, -1)  # a line of a file has no place in a topic
        return DeadLetter(nowhere, -1, entry.reason, entry.detail, None, value, headers)

    def _topic(self, table: str) -> Topic:
        if table in self._topics:
            return self._topics[table]
        copies = describe(self._config, [OFFLINE_FILES_TOPIC])[OFFLINE_FILES_TOPIC].replication
        return Topic(OFFLINE_FILES_TOPIC, replication=copies)

    def _marks(self, progress: LoadProgress) -> list[ProducerRecord]:
        ranges = (self._source, progress.to_json())
        lines = (
            # Only those that are new: the topic is compacted, and keeps the others.
            (f"{self._source}/{digest}", "1")
            for digest in progress.uncounted - self._uncounted
        )
        return [
            ProducerRecord(OFFLINE_FILES_TOPIC, key.encode(), value.encode(), ())
            for key, value in (ranges, *lines)
        ]


def _value(entry: Entry) -> bytes:
    columns = {COUNTER: str(entry.counter).encode()} | entry.row
    members = (json.dumps(name).encode() + b":" + text for name, text in columns.items())
    return b"{" + b",".join(members) + b"}"


def _rejected(entry: Entry, reason: str, detail: str) -> RejectedEntry:
    return RejectedEntry(entry.line, entry.counter, entry.table, reason, detail)
