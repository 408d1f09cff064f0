"""Which of the declared topics exist in Kafka, and whether Kafka answers at all."""

from __future__ import annotations

import enum
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from confluent_kafka import KafkaException

from headrace.errors import AuthorizationError, BrokerUnreachableError
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.runtime.files.durable_files import replace_file

_LOG = logging.getLogger("headrace.ingest")
_LOOK_SECONDS = 1.0
# Five checks, so that one late answer does not count as an outage.
_RECENT_SECONDS = 5.0
_OF_A_TOPIC = (AuthorizationError, KafkaException)

Look = Callable[[], set[str]]
"""Returns which topics exist. Raises BrokerUnreachableError."""


class TopicPresence(enum.Enum):
    """What is known of a topic.

    ``THERE`` and ``MISSING`` are what Kafka answered to this process; ``KEPT``: Kafka has not
    answered since the process started, and the topic existed when it did; ``UNKNOWN``: Kafka has
    not answered, and this host has never seen the topic.
    """

    THERE = "there"
    MISSING = "missing"
    KEPT = "kept"
    UNKNOWN = "unknown"


class TopicWatch:
    """Checks the topics once a second, on a thread of its own.

    Its answers come from memory, so it can be used for every request and every probe. The topics
    that existed are kept in a file, for starts while Kafka is unreachable.
    """

    def __init__(
        self,
        topics: Iterable[str],
        look: Look,
        file: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topics, self._look, self._file, self._clock = set(topics), look, file, clock
        self._kept = _read(file)
        self._there: set[str] | None = None
        self._missing: set[str] = set()
        self._answered_at = float("-inf")
        self._is_unreachable = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="topic watch", daemon=True)

    @property
    def kafka_answers(self) -> bool:
        """Whether Kafka answered within the last seconds."""
        return self._clock() - self._answered_at < _RECENT_SECONDS

    def state(self, topic: str) -> TopicPresence:
        """Returns what is known of a declared topic."""
        if self._there is not None:
            return TopicPresence.THERE if topic in self._there else TopicPresence.MISSING
        return TopicPresence.KEPT if topic in self._kept else TopicPresence.UNKNOWN

    def start(self) -> None:
        """Starts the checks."""
        self._thread.start()

    def look(self) -> None:
        """Asks Kafka once which topics exist."""
        try:
            topics = self._look()
        except BrokerUnreachableError as error:
            _LOG.warning("Kafka does not respond: %s", error.reason)
            self._is_unreachable = True
            return
        if self._is_unreachable:
            _LOG.info("Kafka responds again")
            self._is_unreachable = False
        missing = self._topics - topics
        # Once for each topic that is newly missing, not with every check.
        if missing - self._missing:
            names = ", ".join(sorted(missing))
            _LOG.error("Declared topics do not exist, create them with `headrace apply`: %s", names)
        self._missing = missing
        self._there, self._answered_at = topics, self._clock()
        if topics == self._kept:
            return
        try:
            replace_file(self._file, json.dumps(sorted(topics)).encode(), mode=0o600)
        except OSError as error:
            _LOG.warning(
                "Cannot save the topics in %s, for starts without Kafka: %s", self._file, error
            )
        else:
            self._kept = topics

    def close(self) -> None:
        """Stops the checks."""
        self._ending.set()

    def _follow(self) -> None:
        while not self._ending.is_set():
            try:
                self.look()
            except Exception:  # noqa: BLE001 - without it no later event would be taken
                _LOG.exception("Checking which topics exist failed, retrying")
            self._ending.wait(_LOOK_SECONDS)


def live_topics(config: ClientConfig, topics: Iterable[str]) -> set[str]:
    """Returns the topics that exist, or that this user has no permission to describe.

    Raises:
        BrokerUnreachableError: if the broker does not respond within 15 seconds.
    """
    names = sorted(topics)
    try:
        return set(describe(config, names))
    except _OF_A_TOPIC:  # of one of them; sending to it says more
        return {name for name in names if _may_exist(config, name)}


def _may_exist(config: ClientConfig, name: str) -> bool:
    try:
        return name in describe(config, [name])
    except _OF_A_TOPIC:
        return True


def _read(file: Path) -> set[str]:
    try:
        return set(json.loads(file.read_bytes()))
    except OSError:
        return set()  # nothing was kept yet
    except ValueError as error:
        _LOG.warning("Cannot read the topics saved in %s: %s", file, error)
        return set()
