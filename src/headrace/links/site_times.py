"""How far sites are mirrored: the topic by which a merger distinguishes silence from a cut link.

A mirror that has copied all that a partition of its source held at a time writes that time, in
the transaction of the last of those records, or in a later one. A record's key is the partition of
the copy, as ``topic/partition``, its value the time in milliseconds since 1970, by the clock of the
mirror's machine, and the id of the copy's topic: the time of a copy that was deleted says nothing
of one that has its name since. The topic is compacted: the newest time counts.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import high_watermarks
from headrace.kafka.table.changelog import ensure_changelog
from headrace.model import TopicPartition
from headrace.runtime.clock import now_in_ms

SITE_TIMES = "_headrace.site-times"
"""Name of the topic."""

_KEPT = timedelta(hours=1)  # an older time is of no use: the site was silent for longer
_ASK_SECONDS = 1.0  # a merger's output is this far behind the clock while a site is silent
_KEY = re.compile(rb"([A-Za-z0-9._-]+)/(\d{1,10})")
_TIME = re.compile(rb"(\d{1,16})(?: ([A-Za-z0-9+/_-]{1,32}))?")  # earlier releases wrote no id
NOT_KNOWN_MS = -1


class SiteTime(NamedTuple):
    """The time up to which a partition is copied.

    Attributes:
        time_ms: milliseconds since 1970.
        topic_id: of the copy's topic; empty: an earlier release wrote it, which does not say.
    """

    time_ms: int
    topic_id: str = ""

    def of(self, topic_id: str) -> int:
        """Returns the time, if it is one of this topic; else :data:`NOT_KNOWN_MS`."""
        return self.time_ms if self.topic_id in {"", topic_id} else NOT_KNOWN_MS

    @property
    def record_value(self) -> bytes:
        """The value of its record."""
        return f"{self.time_ms} {self.topic_id}".rstrip().encode()


def ensure_site_times(config: ClientConfig) -> None:
    """Creates the topic unless it exists.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    ensure_changelog(config, SITE_TIMES, _KEPT)


def site_time_key(copy: TopicPartition) -> bytes:
    """Returns the key of the times of a partition."""
    return f"{copy.topic}/{copy.partition}".encode()


def read_site_time(key: bytes, value: bytes | None) -> tuple[TopicPartition, SiteTime] | None:
    """Returns the partition of a copy, and the time up to which it is complete.

    ``None``: the record is not one of ours.
    """
    place, time = _KEY.fullmatch(key), None if value is None else _TIME.fullmatch(value)
    if place is None or time is None:
        return None
    copy = TopicPartition(place[1].decode(), int(place[2]))
    return copy, SiteTime(int(time[1]), (time[2] or b"").decode())


class SourceEnds:
    """Asks every second where the partitions of a source end, on a thread of its own.

    While the source does not answer, the last answer stays: a mirror must not wait for the source
    within a transaction.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._ends: tuple[int, Mapping[TopicPartition, int]] = (0, {})
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ends of a source", daemon=True)
        self._thread.start()

    def ask_for(self, partitions: Collection[TopicPartition]) -> None:
        """Sets the partitions whose ends are requested."""
        self._partitions = frozenset(partitions)

    @property
    def latest(self) -> tuple[int, Mapping[TopicPartition, int]]:
        """Returns a time, in milliseconds since 1970, and the ends at that time or later.

        Records of open transactions are before these ends.
        """
        return self._ends

    def close(self) -> None:
        """Ends the thread, without waiting for a request that is in flight."""
        self._ending.set()

    def _run(self) -> None:
        while not self._ending.wait(_ASK_SECONDS):
            partitions = self._partitions
            if partitions:
                time_ms = now_in_ms()  # before: what comes later is not counted
                with suppress(HeadraceError):  # the reader reports what is wrong with the source
                    self._ends = (time_ms, high_watermarks(self._config, partitions))
