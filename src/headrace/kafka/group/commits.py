"""Offsets that a member of a consumer group commits, without waiting for the answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headrace.kafka.client.broker_errors import Meaning, meaning
from headrace.kafka.client.partitions import client_partition
from headrace.model import TopicPartition

_LOG = logging.getLogger("headrace.kafka")

Answered = Callable[[Meaning | None], None]
"""Called with the meaning of a commit's error; ``None``: the offsets are committed."""

_Offsets = frozenset[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """An offset to commit, the next record to read, and what is to stand beside it.

    Attributes:
        partition: of a topic.
        offset: of the next record.
        metadata: any text.
        epoch: of a leader that had the records before the offset; -1: not known.
    """

    partition: TopicPartition
    offset: int
    metadata: str
    epoch: int = -1


class Commits:
    """Commits of one consumer, sent and answered on its thread.

    A synchronous commit would stop polls: while other members of a classic group are waited for,
    the coordinator answers nothing on this connection until the rebalance has ended, which may
    take the whole session of a member that was killed.

    ``answer`` must be the consumer's ``on_commit``. It is called within ``poll``, ``consume`` and
    ``close``, once for each commit, also for those that failed.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._sent: list[tuple[_Offsets, Answered]] = []

    def send(
        self,
        consumer: confluent_kafka.Consumer,
        commits: Sequence[OffsetCommit],
        answered: Answered,
    ) -> None:
        """Sends ``commits``; ``answered`` is called when their answer has come.

        Raises:
            KafkaException: if the consumer can't commit any more.
        """
        offsets = [
            client_partition(commit.partition, commit.offset, commit.metadata, commit.epoch)
            for commit in commits
        ]
        self._sent.append((_key(offsets), answered))
        try:
            consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            self.answer(error.args[0], offsets)

    def answer(self, error: KafkaError | None, offsets: Sequence[Any] | None) -> None:
        """The consumer's callback."""
        key = _key(offsets or ())
        if error is None:
            errors = (offset.error for offset in offsets or ())
            error = next((error for error in errors if error is not None), None)
        means = None if error is None else meaning(error)
        if error is not None:
            level = logging.INFO if means is Meaning.REBALANCING else logging.WARNING
            _LOG.log(level, "%s: a commit failed: %s", self._group, error.str())
        # The callback names no request: a commit is known by its offsets.
        for place, (sent, answered) in enumerate(self._sent):
            if sent == key:
                del self._sent[place]
                answered(means)
                return


def _key(offsets: Iterable[Any]) -> _Offsets:
    return frozenset((offset.topic, offset.partition, offset.offset) for offset in offsets)
