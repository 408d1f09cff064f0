"""Spreads that are applied to the new topic, by which its producers place large accounts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import TopicChangeRefusedError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import Topic
from headrace.topics.spreads.following import FollowedSpreads, SpreadsOpenError, SpreadsReader
from headrace.topics.spreads.loads import TextOf
from headrace.topics.spreads.placing import AccountPlace


class ChangeSpreads:
    """Places records by what is applied, which a thread follows within :meth:`followed`.

    Args:
        old: the topic that is copied.
        new: the topic of the copies, which takes spreads.
        config: librdkafka's settings of the cluster.
        text_of: of values of registered formats; None: values are JSON texts.
    """

    def __init__(self, old: str, new: Topic, config: ClientConfig, text_of: TextOf | None) -> None:
        self._old, self._new = old, new.name
        self._read = SpreadsReader(KafkaCluster(dict(config)))
        self._follows = FollowedSpreads([new], self._read)
        self.place = AccountPlace(new, text_of, self._follows.of(new))

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Reads what is applied, and again on a thread until the block ends.

        Raises:
            BrokerUnreachableError: if the brokers do not answer.
            AuthorizationError: if an ACL is missing.
            TopicChangeRefusedError: if a version is just being written.
        """
        try:
            self._read()  # the reads of the thread log what fails, and retry
        except SpreadsOpenError:
            reason = f"spreads of {self._new} are just being written: run the command again"
            raise TopicChangeRefusedError(self._old, self._new, reason) from None
        self._follows.refresh()
        self._follows.start()
        try:
            yield
        finally:
            self._follows.close()
