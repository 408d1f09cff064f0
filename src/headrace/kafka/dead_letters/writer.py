"""Dead letters on their way to their topics: pipelines and workers write them by the same rules."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.errors import RecordRejectedError, TopicMissingError
from headrace.kafka.client.admin_requests import topic_ids
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.dead_letters.letters import (
    dead_letter_record,
    dead_letters_topic,
    find_written,
)
from headrace.kafka.write.failures import raise_first
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.sending import send_each
from headrace.model import DeadLetter, TopicPartition

CanRepeat = Callable[[TopicPartition, int], bool]
"""Whether the record at an offset of a partition may be rejected a second time."""
_Place = tuple[TopicPartition, int, int]


class DeadLetterWriter:
    """Writes the dead letters of one pipeline or worker, one for each record or event.

    Delivery: a record is rejected again after a crash, a reset or a rebalance, when its dead letter
    was written and the progress after it was not. So before it writes to a topic for the first
    time, the writer reads which of its dead letters are there, and leaves those records out. It
    waits up to two minutes for open transactions on the topic meanwhile. Written twice are only: a
    letter whose acknowledgement was lost, and letters of derived rows, whose offset is -1.

    What Kafka rejects with the headers of the original record is written without them.

    Order: none between letters. Calls block, and only :meth:`forget` may run beside another.

    Args:
        config: of librdkafka.
        writer: name of the pipeline or worker.
        version: of ``writer``.
        max_remembered: of a topic, remember so many of the latest letters, those too that are
            written from now on, where a record may come again while the writer lives; ``None``:
            remember all that are read at first.
    """

    def __init__(
        self, config: ClientConfig, writer: str, version: str, *, max_remembered: int | None = None
    ) -> None:
        self._config, self._writer, self._version = config, writer, version
        self._max_remembered = max_remembered
        self._written: dict[str, dict[_Place, None]] = {}

    def write(self, letters: Iterable[DeadLetter], can_repeat: CanRepeat) -> None:
        """Returns when every letter is in its topic, on all in-sync replicas.

        Raises:
            TopicMissingError: if a dead-letter topic does not exist.
            BrokerUnreachableError: if the brokers do not acknowledge in time; some letters may be
                written.
            SinkError: if the brokers reject a letter.
        """
        letters = list(letters)
        for topic in self.unread_topics(letters):
            self.read_written(topic, can_repeat)
        if new := self.unwritten(letters):
            raise_first(self.send(new, self.topic_ids(new)).values())

    def forget(self) -> None:
        """Makes the next write read again what is written: others may have written meanwhile."""
        self._written = {}

    def unread_topics(self, letters: Iterable[DeadLetter]) -> set[str]:
        """Returns the origins of ``letters`` whose dead letters were not read yet."""
        return {letter.partition.topic for letter in letters} - self._written.keys()

    def read_written(self, topic: str, can_repeat: CanRepeat, since_ms: int = -1) -> None:
        """Reads which records of ``topic`` have a dead letter of this pipeline or worker.

        When :meth:`forget` was called meanwhile, it has no effect.

        Args:
            topic: the origin.
            can_repeat: only positions are remembered that may be asked for.
            since_ms: no letter of such a record was written before; -1: not known.

        Raises:
            BrokerUnreachableError: if the brokers do not answer, or a transaction stays open.
        """
        written = self._written  # another dict takes its place when forget is called meanwhile
        stored = (
            (letter.written_ms, letter.letter.place)
            for letter in find_written(self._config, topic, self._writer, since_ms)
            if letter.letter.offset >= 0 and can_repeat(*letter.letter.position)
        )
        if self._max_remembered is None:
            written[topic] = {place: None for _, place in stored}
        else:  # the oldest of them first, to be forgotten first
            latest = heapq.nlargest(self._max_remembered, stored)
            written[topic] = {place: None for _, place in reversed(latest)}

    def unwritten(self, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
        """Returns those of ``letters`` that are not known to be written."""
        written = self._written
        return [
            letter
            for letter in letters
            if letter.place not in written.get(letter.partition.topic, ())
        ]

    def topic_ids(self, letters: Iterable[DeadLetter]) -> Mapping[str, str]:
        """Returns the ids of the origins of ``letters``, for :meth:`send`.

        Raises:
            TopicMissingError: if a dead-letter topic does not exist.
            BrokerUnreachableError: if the brokers do not answer.
        """
        return _topic_ids(self._config, letters)

    def send(self, letters: Sequence[DeadLetter], ids: Mapping[str, str]) -> dict[int, Exception]:
        """Writes ``letters``, whether they are written already or not.

        Returns:
            why a letter was not written, by its index; see :func:`send_each`.
        """
        failures = send_each(self._config, self._records(letters, ids))
        rejected = {
            index: without_headers(letters[index], error)
            for index, error in failures.items()
            if isinstance(error, RecordRejectedError)
        }
        # Sent again without what Kafka may have rejected: a letter without headers is better than
        # none.
        if rejected:
            records = self._records(list(rejected.values()), ids)
            again = send_each(self._config, records)
            for place, index in enumerate(rejected):
                del failures[index]
                if place in again:
                    failures[index] = again[place]
        self._remember(letter for at, letter in enumerate(letters) if at not in failures)
        return failures

    def _records(
        self, letters: Sequence[DeadLetter], ids: Mapping[str, str]
    ) -> list[ProducerRecord]:
        return _records(letters, self._writer, self._version, ids)

    def _remember(self, letters: Iterable[DeadLetter]) -> None:
        """A crash may have sent a record to its retry topic twice, shortly one after the other."""
        if self._max_remembered is None:
            return
        for letter in letters:
            written = self._written.get(letter.partition.topic, {})
            written[letter.place] = None
            if len(written) > self._max_remembered:
                del written[next(iter(written))]


def dead_letter_records(
    config: ClientConfig, letters: Iterable[DeadLetter], writer: str, version: str
) -> list[ProducerRecord]:
    """Returns the records of ``letters``, for those who write them in a transaction.

    Raises:
        TopicMissingError: if a dead-letter topic does not exist.
        BrokerUnreachableError: if the brokers do not answer.
    """
    letters = list(letters)
    return _records(letters, writer, version, _topic_ids(config, letters))


def _records(
    letters: Iterable[DeadLetter], writer: str, version: str, ids: Mapping[str, str]
) -> list[ProducerRecord]:
    return [
        dead_letter_record(letter, writer, version, ids.get(letter.partition.topic, ""))
        for letter in letters
    ]


def _topic_ids(config: ClientConfig, letters: Iterable[DeadLetter]) -> Mapping[str, str]:
    origins = {letter.partition.topic for letter in letters}
    ids = topic_ids(config, origins | {dead_letters_topic(origin) for origin in origins})
    for origin in origins:
        if dead_letters_topic(origin) not in ids:
            raise TopicMissingError(dead_letters_topic(origin))
    return ids


def without_headers(letter: DeadLetter, error: Exception) -> DeadLetter:
    """Leaves out what Kafka may have rejected the letter for: the record's headers, a long detail.

    Its key and value are kept: without them a replay would write another record.
    """
    detail = f"written without the record's headers and without the first detail: {error}"
    return replace(letter, detail=detail, headers=())
