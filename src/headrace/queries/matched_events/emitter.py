"""Sends the events of a topic that match, until it is stopped."""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import (
    BrokerUnreachableError,
    CheckpointInUseError,
    MatchedEventsRunningError,
    RefusedError,
    TopicMissingError,
)
from headrace.kafka.client import high_watermarks, watermarks
from headrace.kafka.cluster import KafkaCluster
from headrace.model import TopicPartition
from headrace.pipelines.failures import NEVER_RETRIED, RestartBudget, headline
from headrace.pipelines.lock import CheckpointLock
from headrace.pipelines.references.positions import ReferencePosition, live_positions
from headrace.queries.match.held import RegistryReader
from headrace.queries.matched_events.outgoing import RuleColumns, matched_events
from headrace.queries.matched_events.positions import (
    MatchedTopic,
    MatchStart,
    commit_positions,
    committed_positions,
    find_start,
    positions_at_ends,
)
from headrace.queries.matched_events.rules import MAX_SHAPES, EmittingRules
from headrace.queries.matched_events.status import EmitterStatus
from headrace.queries.topics import ensure_query_topics
from headrace.transfer.committed_position import CommittedPosition
from headrace.transfer.spark_query import DoneBatches, KafkaQuery, OutgoingRows, ReadTopic
from headrace.transfer.status import TransferState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.settings import RestartSettings

_LOG = logging.getLogger("headrace.queries")
_LOOK_SECONDS = 0.5
_NO_QUERIES_SECONDS = 1.0
_CHECK_SECONDS = 10.0
_COMMIT_SECONDS = 180  # events wait for up to a second at the end of a batch of Spark
# Where queries change before such a batch has ended: so that positions move on.
_SHORT_COMMIT_SECONDS = 5
_QUIET_SECONDS = 60.0  # without a change: batches are long again
_MIN_QUERY_SECONDS = 2.0  # changes of the registry within it are taken together
_SETTLE_SECONDS = 0.3  # what a query that was stopped has in flight reaches the topic


@dataclass
class _Running:
    """A query of Spark, and what is known of it.

    Attributes:
        query: that runs.
        columns: of the rules that it has.
        newest: events by which it was chosen what queries are looked up by.
        positions: that are committed.
        ends: of the partitions of matched events, as of the last look.
        commit_seconds: how long a batch is.
        already_sent: records behind the positions that an earlier query of Spark has sent.
        batches: that have ended.
        began_at: when it began.
        checked_at: when it was looked whether it still reads what it should.
    """

    query: KafkaQuery
    columns: RuleColumns
    newest: pa.Table
    positions: dict[TopicPartition, CommittedPosition]
    ends: Mapping[TopicPartition, int]
    commit_seconds: int
    already_sent: int
    began_at: float
    checked_at: float
    batches: int = 0

    @property
    def age(self) -> float:
        """How long it has been running, in seconds."""
        return time.monotonic() - self.began_at


class EventEmitter:
    """Sends matched events of one topic. Used once.

    Args:
        matched: whose events, and which queries.
        registry: reads the queries.
        newest: returns the newest events of the topic, by which it is chosen what queries are
            looked up by.
        session: opens the Spark session.
        restart: how often, and after how long, a query of Spark that failed is started again.
        state: the project's folder on this machine.
    """

    def __init__(
        self,
        matched: MatchedTopic,
        registry: RegistryReader,
        newest: Callable[[], pa.Table],
        session: Callable[[], AbstractContextManager[SparkSession]],
        restart: RestartSettings,
        state: Path,
    ) -> None:
        self._matched, self._registry, self._newest = matched, registry, newest
        self._session, self._state = session, state
        self._read_to: ReferencePosition | None = None
        self._budget, self._retry_seconds = RestartBudget(restart), restart.first_delay_seconds
        self._stop = threading.Event()
        self._changes_often = False
        self._running: _Running | None = None
        self._observe: Callable[[Any], None] = lambda _: None
        self._status = EmitterStatus(f"{matched.queries.name}.{matched.topic.name}")

    def stop(self) -> None:
        """Ends it; the next start reads at the end of the topic what was sent. From any thread."""
        self._stop.set()

    def status(self) -> EmitterStatus:
        """Returns how it is doing."""
        return replace(self._status, updated_ms=time.time_ns() // 1_000_000)

    def run(self, observe: Callable[[Any], None]) -> None:
        """Runs it until it is stopped; what passes by itself is waited for.

        Args:
            observe: is called twice a second.

        Raises:
            MatchedEventsRunningError: if another process sends them.
            HeadraceError: what does not pass by itself.
        """
        self._observe = observe
        lock = self._locked()
        try:
            self._status = replace(
                self._status, state=TransferState.WAITING, reason="Spark is starting"
            )
            observe(None)
            with self._session() as spark:
                while not self._stop.is_set():
                    try:
                        self._run_queries(spark)
                    except Exception as error:
                        delay = self._delay_after(error)
                        if delay is None:
                            raise
                        self._wait(headline(error), delay)
            with contextlib.suppress(BrokerUnreachableError, TopicMissingError):
                self._find_start()
        finally:
            lock.release()

    def _locked(self) -> CheckpointLock:
        name = self._status.name
        lock = CheckpointLock(self._state / "locks", f"matched-events.{name}")
        try:
            lock.acquire()
        except CheckpointInUseError as error:
            raise MatchedEventsRunningError(name, error.holder) from error
        return lock

    def _delay_after(self, error: Exception) -> float | None:
        """Returns how long to wait before the next start; None: there is none."""
        if isinstance(error, (BrokerUnreachableError, TopicMissingError)):
            return self._retry_seconds
        if isinstance(error, (RefusedError, *NEVER_RETRIED)):
            return None
        delay = self._budget.next_delay(time.monotonic())
        self._status = replace(self._status, restarts=self._status.restarts + 1)
        return delay

    def _run_queries(self, spark: SparkSession) -> None:
        """Runs one query of Spark after the other, until it is stopped."""
        ensure_query_topics(self._matched.config, self._matched.queries)
        rules: RuleColumns | None = None
        is_idle = False
        while not self._stop.is_set():
            if rules is None:
                newest = self._newest()
                rules = self._columns(self._rules(newest))
            if rules.rules.rows:
                if is_idle:
                    self._commit(positions_at_ends(self._matched))
                is_idle = False
                rules = self._run_query(spark, rules, newest)
            else:
                rules, is_idle = None, True
                self._wait("no live query has MATCHED EVENTS EMIT", _NO_QUERIES_SECONDS)

    def _run_query(
        self, spark: SparkSession, rules: RuleColumns, newest: pa.Table
    ) -> RuleColumns | None:
        """Runs a query of Spark until it is to end; returns the rules of the next, if known."""
        folder = self._state / "state" / f"matched-events.{self._status.name}"
        shutil.rmtree(folder, ignore_errors=True)  # also what a killed process left
        folder.mkdir(parents=True)
        running = self._running = self._started(spark, rules, newest, folder)
        try:
            return self._watch(running)
        finally:
            running.query.stop()
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(_SETTLE_SECONDS)

    def _rules(self, newest: pa.Table) -> EmittingRules:
        """Returns the queries as they are registered now."""
        self._read_to = position = self._registry_end()
        queries = self._registry.live(position, time.time_ns() // 1_000_000)
        offset = sum(position.partitions.values())
        return EmittingRules.of(queries.emitting(newest), offset)

    def _columns(self, rules: EmittingRules) -> RuleColumns:
        return RuleColumns.of(rules, self._matched.schema)

    def _registry_end(self) -> ReferencePosition:
        registry = self._registry.registry
        return live_positions(KafkaCluster(self._matched.config), [registry])[registry]

    def _started(
        self, spark: SparkSession, columns: RuleColumns, newest: pa.Table, folder: Path
    ) -> _Running:
        matched = self._matched
        start = self._find_start()
        for reason in start.skipped.values():
            _LOG.error("Events are skipped: %s", reason)
        ends = self._ends(start.positions)
        offsets = {source: at.offset for source, at in start.positions.items()}
        source = ReadTopic(matched.config, matched.topic.name, offsets, matched.group)
        outgoing = partial(matched_events, matched=matched, columns=columns, sent=start.sent)
        written = OutgoingRows(matched.config, outgoing)
        commit_seconds = _SHORT_COMMIT_SECONDS if self._changes_often else _COMMIT_SECONDS
        trigger = {"realTime": f"{commit_seconds} seconds"}
        query = KafkaQuery(spark, self._status.name, source, written, trigger, folder)
        rules = columns.rules
        _LOG.info("%s: goes on with %d rows of queries", self._status.name, len(rules.rows))
        self._status = replace(
            self._status,
            state=TransferState.RUNNING,
            reason=_left_out(rules),
            queries=len({row["query"] for row in rules.rows}),
            registry_offset=rules.registry_offset,
        )
        return _Running(
            query,
            columns,
            newest,
            dict(start.positions),
            ends,
            commit_seconds,
            already_sent=sum(len(event.queries) for event in start.sent.values()),
            began_at=time.monotonic(),
            checked_at=time.monotonic(),
        )

    def _find_start(self) -> MatchStart:
        """Commits where to go on, and counts what the query before has sent."""
        start = find_start(self._matched)
        positions = self._commit(start.positions)
        if self._running is not None:
            records = self._status.records + start.records - self._running.already_sent
            self._status = replace(self._status, records=records)
            self._running = None
        return replace(start, positions=positions)

    def _commit(
        self, positions: Mapping[TopicPartition, CommittedPosition]
    ) -> dict[TopicPartition, CommittedPosition]:
        instance = self._status.instance
        own = {source: replace(at, instance=instance) for source, at in positions.items()}
        commit_positions(self._matched, own)
        return own

    def _watch(self, running: _Running) -> RuleColumns | None:
        """Commits what the query has done, until there is a reason to end it.

        Returns:
            the rules that are to go on with; None: those of then.
        """
        while not self._stop.is_set():
            is_active = running.query.is_active
            self._look(running)
            if not is_active:
                failure = running.query.failure
                if failure is not None:
                    raise failure
                return None
            is_due = time.monotonic() - running.checked_at >= _CHECK_SECONDS
            if is_due and self._is_other_topic(running):
                return None
            if self._may_change(running):
                # Queries expire without a record of the topic of queries.
                if is_due or self._registry_end() != self._read_to:
                    rules, others = self._rules(running.newest), running.columns.rules
                    if rules.identities != others.identities:
                        self._changes_often = not running.batches
                        return self._columns(rules.after(others, self._source_ends(running)))
                if running.commit_seconds < _COMMIT_SECONDS and running.age >= _QUIET_SECONDS:
                    self._changes_often = False
                    return running.columns
            self._observe(None)
            self._stop.wait(_LOOK_SECONDS)
        return None

    def _may_change(self, running: _Running) -> bool:
        """Whether the query may end for other rules: of a short batch, once it has ended."""
        if running.commit_seconds < _COMMIT_SECONDS:
            return running.batches > 0
        return running.age >= _MIN_QUERY_SECONDS

    def _source_ends(self, running: _Running) -> dict[int, int]:
        """Returns the end of each partition of the topic, by number."""
        marks = watermarks(self._matched.config, running.positions)
        return {source.partition: end for source, (_, end) in marks.items()}

    def _look(self, running: _Running) -> None:
        ends = self._ends(running.positions)
        done = running.query.progress()
        if done is not None:
            self._commit_batches(running, done)
        running.ends = ends
        marks = watermarks(self._matched.config, running.positions)
        lags = {p.path: max(marks[p][1] - at.offset, 0) for p, at in running.positions.items()}
        self._status = replace(self._status, lags=lags)

    def _commit_batches(self, running: _Running, done: DoneBatches) -> None:
        """What later events have sent is behind the ends as they were before the batch was done."""
        matched = self._matched
        self._check_claim(running)
        running.positions = {
            source: replace(
                running.positions[source],
                offset=offset,
                scan_from=running.ends[matched.target(source)],
            )
            for source, offset in done.positions.items()
        }
        commit_positions(matched, running.positions)
        running.query.acknowledge(done)
        running.batches, running.already_sent = running.batches + 1, 0
        read, records = self._status.read + done.read, self._status.records + done.sent
        self._status = replace(self._status, read=read, records=records)

    def _is_other_topic(self, running: _Running) -> bool:
        """Whether the topic was made again, or has other partitions."""
        running.checked_at = time.monotonic()
        self._check_claim(running)
        live = self._matched.live()
        ids = {at.topic_id for at in running.positions.values()}
        return ids != {live.topic_id} or live.partitions != len(running.positions)

    def _check_claim(self, running: _Running) -> None:
        """Raises where the positions are not those that this instance committed."""
        for at in committed_positions(self._matched, running.positions).values():
            if at.instance != self._status.instance:
                raise MatchedEventsRunningError(self._status.name, at.instance)

    def _ends(self, sources: Mapping[TopicPartition, Any]) -> Mapping[TopicPartition, int]:
        return high_watermarks(self._matched.config, set(map(self._matched.target, sources)))

    def _wait(self, reason: str, seconds: float) -> None:
        if self._status.reason != reason:
            _LOG.warning("%s: waits: %s", self._status.name, reason)
        self._status = replace(self._status, state=TransferState.WAITING, reason=reason)
        self._observe(None)
        self._stop.wait(seconds)


def _left_out(rules: EmittingRules) -> str:
    if not rules.left_out:
        return ""
    return (
        f"{rules.left_out:,} queries match nothing: they differ from others in more than "
        f"constants, and {MAX_SHAPES:,} such shapes are possible"
    )
