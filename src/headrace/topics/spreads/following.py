"""Producers follow what is applied: see :mod:`headrace.topics.spreads`."""

from __future__ import annotations

import functools
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.errors import HeadraceError, SpreadsUnknownError, TopicMissingError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.read.cluster import KafkaCluster
from headrace.kafka.read.range_reader import Record
from headrace.kafka.table.topic_table import HeldTable, TopicPosition
from headrace.model import AppliedSpreads, ByAccount, Spread, Topic
from headrace.runtime.files.durable_files import replace_file
from headrace.topics.spreads.spread_table import SPREADS_TOPIC, SpreadTable

_LOG = logging.getLogger("headrace.topics")
_MAX_INTERVAL = timedelta(seconds=30)
_MIN_INTERVAL = timedelta(seconds=1)
_ANY_WINDOW = timedelta(days=1)
_NOTHING = SpreadTable()
_READS = 4  # in the time that brokers may be unreachable

Tables = Mapping[str, SpreadTable]
"""By topic."""


class SpreadsOpenError(Exception):
    """A version is just being written, or its writer crashed within the last minute."""

    def __str__(self) -> str:
        return (self.__doc__ or "").rstrip(".")


class SpreadsReader:
    """Reads what was applied; a later read only what has changed since."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._held = HeldTable(_Table)

    def __call__(self) -> Tables:
        """Returns what was applied, by topic; nothing if nothing ever was.

        Raises:
            BrokerUnreachableError: if the brokers do not answer.
            AuthorizationError: if an ACL is missing.
            SpreadsOpenError: if a version is just being written.
            TableRecreatedError: if the topic is deleted and recreated meanwhile.
        """
        try:
            table = self._held.read_to(self._end(), self._cluster, SPREADS_TOPIC)
        except TopicMissingError:
            self._held.clear()
            return {}
        except BaseException:
            self._held.clear()  # it may be at any position
            raise
        return dict(table.tables)

    def _end(self) -> TopicPosition:
        live = self._cluster.live_unless_open(SPREADS_TOPIC)
        if live is None:
            # It may be committed, and be hidden until its marker is written.
            raise SpreadsOpenError
        return TopicPosition(live.topic_id, live.latest, live.epochs)


class FollowedSpreads:
    """What was applied to topics, for the producers of one process. On any thread.

    Args:
        topics: those that a process sends to.
        read: returns what was applied now.
        clock: seconds since 1970.
        file: keeps what was read, for starts while the brokers are unreachable.

    It reads when an event is placed and the last read is some time ago, or, once :meth:`start` was
    called, on a thread of its own.
    """

    def __init__(
        self,
        topics: Iterable[Topic],
        read: Callable[[], Tables],
        clock: Callable[[], float] = time.time,
        file: Path | None = None,
    ) -> None:
        self._leads = {topic.name: lead for topic in topics if (lead := _lead(topic)) is not None}
        # What is left of the lead for events that are as far ahead as they may be.
        rest = [
            self._leads[topic.name] - topic.latest_ahead
            for topic in topics
            if topic.name in self._leads
        ]
        shortest = min(rest, default=_MAX_INTERVAL) / _READS
        interval = max(_MIN_INTERVAL, min(_MAX_INTERVAL, shortest))
        self._interval = interval.total_seconds()
        self._read, self._clock, self._file = read, clock, file
        self._lock = threading.Lock()
        self._tried_at = float("-inf")
        self._reason = "it was not read yet"
        self._is_followed = False
        self._ending = threading.Event()
        # One value, as places are asked for on other threads than the one that reads.
        self._state: tuple[float, Tables] = _kept(file)

    def of(self, topic: Topic) -> AppliedSpreads | None:
        """Returns what was applied to a topic; None: the topic takes only declared spreads."""
        lead = self._leads.get(topic.name)
        if lead is None:
            return None
        return functools.partial(self._spreads, topic.name, lead)

    def start(self) -> None:
        """Reads on a thread of its own from now on; not if no topic takes spreads."""
        if self._leads:
            self._is_followed = True
            threading.Thread(target=self._follow, name="spreads", daemon=True).start()

    def close(self) -> None:
        """Ends the thread."""
        self._ending.set()

    def refresh(self) -> None:
        """Reads what was applied; where that fails, what was read before counts for its time."""
        # Taken before the read: what is written meanwhile may be missing in it.
        self._tried_at, read_at = time.monotonic(), self._clock()
        try:
            tables = self._read()
        except Exception as error:  # noqa: BLE001 - events of windows that are known still go
            self._reason = str(error).rstrip(".")
            text = error if isinstance(error, HeadraceError) else repr(error)
            _LOG.warning("Cannot read which spreads are applied, trying again: %s", text)
            return
        known = self._state[1]
        for topic in self._leads:
            version, before = (of.get(topic, _NOTHING).version for of in (tables, known))
            if version < before:
                self._reason = f"it has version {version}, and had {before}: it was deleted or cut"
                _LOG.error("Topic %s: %s %s", topic, SPREADS_TOPIC, self._reason)
                return
            if version > before:
                _LOG.info("Topic %s: read version %d of its spreads", topic, version)
        self._state = read_at, tables
        self._keep()

    def _spreads(
        self, topic: str, lead: timedelta, account: str, begin: datetime
    ) -> Sequence[Spread]:
        if not self._is_followed and time.monotonic() - self._tried_at > self._interval:
            with self._lock:
                if time.monotonic() - self._tried_at > self._interval:
                    self.refresh()
        read_at, tables = self._state
        table = tables.get(topic, _NOTHING)
        # The shorter one: a version may have been applied by a project that declares it.
        known_for = lead if table.lead is None else min(lead, table.lead)
        if begin.timestamp() >= read_at + known_for.total_seconds():
            raise SpreadsUnknownError(topic, self._why(read_at, begin))
        return table.spreads.get(account, ())

    def _why(self, read_at: float, begin: datetime) -> str:
        read = "never" if read_at <= 0 else f"last at {datetime.fromtimestamp(read_at, UTC):%FT%TZ}"
        return f"window {begin:%FT%TZ}, {SPREADS_TOPIC} was read {read}: {self._reason}"

    def _follow(self) -> None:
        while not self._ending.is_set():
            self.refresh()
            self._ending.wait(self._interval)

    def _keep(self) -> None:
        if self._file is None:
            return
        read_at, tables = self._state
        texts = {topic: table.encoded().decode() for topic, table in tables.items()}
        content = json.dumps({"read_at": read_at, "tables": texts}).encode()
        try:
            replace_file(self._file, content, mode=0o600)
        except OSError as error:
            _LOG.warning(
                "Cannot save spreads in %s, for starts without Kafka: %s", self._file, error
            )


def applied_spreads(config: ClientConfig, topic: Topic) -> AppliedSpreads | None:
    """Returns what was applied to a topic of a cluster; this process reads it once for all.

    None: the topic takes only declared spreads.
    """
    lead = _lead(topic)
    if lead is None:
        return None
    client = frozenset(config.items())
    return _followed(os.getpid(), client, topic.name, lead, topic.latest_ahead).of(topic)


@functools.lru_cache(maxsize=64)
def _followed(
    pid: int,  # noqa: ARG001 - a forked process has no connections
    client: frozenset[tuple[str, str]],
    name: str,
    lead: timedelta,
    ahead: timedelta,
) -> FollowedSpreads:
    topic = Topic(name, partitioning=ByAccount(_ANY_WINDOW, lead=lead), latest_ahead=ahead)
    return FollowedSpreads([topic], SpreadsReader(KafkaCluster(dict(client))))


class _Table:
    def __init__(self) -> None:
        self.tables: dict[str, SpreadTable] = {}

    def take(self, records: Sequence[Record]) -> None:
        for record in records:
            key, value = record.key(), record.value()
            if key is None:
                continue
            if value is None:
                self.tables.pop(key.decode(), None)
            else:
                self.tables[key.decode()] = SpreadTable.decoded(value)


def _lead(topic: Topic) -> timedelta | None:
    return topic.partitioning.lead if isinstance(topic.partitioning, ByAccount) else None


def _kept(file: Path | None) -> tuple[float, Tables]:
    nothing = 0.0, dict[str, SpreadTable]()
    if file is None:
        return nothing
    try:
        document = json.loads(file.read_bytes())
        tables = {
            topic: SpreadTable.decoded(text.encode()) for topic, text in document["tables"].items()
        }
        return float(document["read_at"]), tables
    except FileNotFoundError:
        return nothing
    except (OSError, ValueError, KeyError, TypeError) as error:
        _LOG.warning("Cannot read the spreads saved in %s: %s", file, error)
        return nothing
