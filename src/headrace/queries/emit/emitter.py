"""Sends the matched events of a topic until it is stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.errors import (
    BrokerUnreachableError,
    MatchedEventsRunningError,
    TopicMissingError,
)
from headrace.kafka.read.resume import SourceChangedError
from headrace.kafka.table.topic_table import TopicPosition
from headrace.model import TopicPartition
from headrace.queries.emit.emitter_position import EmitterPosition
from headrace.queries.emit.outgoing import RuleColumns
from headrace.queries.emit.plan import EmitterPlan
from headrace.queries.emit.positions import (
    EmitterStart,
    commit_positions,
    find_start,
    with_queries,
)
from headrace.queries.emit.rules import MAX_SHAPES, EmittingRules
from headrace.queries.emit.running_query import RunningQuery
from headrace.queries.emit.status import EmitterStatus
from headrace.queries.match.held import RegistryReader
from headrace.queries.topics import ensure_query_topics
from headrace.runtime.clock import now_in_ms
from headrace.service.restart import Fail, FailureKind, Refuse, Restart, RestartPolicy
from headrace.service.status import State
from headrace.spark.claimed_query import lags_of
from headrace.spark.failures import headline, kind_of
from headrace.spark.lock import CheckpointLock
from headrace.spark.session import SPARK_STARTS
from headrace.spark.topic_query import DoneBatches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.settings import RestartSettings

_LOG = logging.getLogger("headrace.queries")
_LOOK_SECONDS = 0.5  # completed batches are committed, and changes of the registry noticed
_NO_QUERIES_SECONDS = 1.0  # the registry is read again while no query asks for matched events
_CHECK_SECONDS = 10.0  # expired queries, recreated topics and commits of others are noticed
_QUIET_SECONDS = 60.0  # without changes of the registry for this time, batches are long again


class EventEmitter:
    """Sends the matched events of one topic. Used once.

    Args:
        matched: the topic of events, with the standing queries.
        registry: reader of the registered queries.
        newest: returns the newest events of the topic, by which the operand that each query is
            looked up by is chosen.
        session: opens the Spark session.
        restart: how often, and after which delay, a failed Spark query is started again.
        state: the project's folder on this machine.
    """

    def __init__(
        self,
        matched: EmitterPlan,
        registry: RegistryReader,
        newest: Callable[[], pa.Table],
        session: Callable[[], AbstractContextManager[SparkSession]],
        restart: RestartSettings,
        state: Path,
    ) -> None:
        self._matched, self._registry, self._newest = matched, registry, newest
        self._session, self._state = session, state
        self._read_to: TopicPosition | None = None
        self._policy = RestartPolicy(restart, _kind_of)
        self._stop = threading.Event()
        self._changes_often = False
        self._running: RunningQuery | None = None
        self._observe: Callable[[None], None] = lambda _: None
        self._status = EmitterStatus(matched.name)

    def stop(self) -> None:
        """Ends :meth:`run`. May be called on any thread.

        The next start finds what was sent at the end of the topic of matched events.
        """
        self._stop.set()

    def status(self) -> EmitterStatus:
        """Returns the current status."""
        return replace(self._status, updated_ms=now_in_ms())

    def run(self, observe: Callable[[None], None]) -> None:
        """Sends matched events, and retries transient errors, until stopped.

        Args:
            observe: called twice a second.

        Raises:
            MatchedEventsRunningError: if another process sends matched events of the topic.
            HeadraceError: if an error is not transient.
        """
        self._observe = observe
        name = self._status.name
        running = partial(MatchedEventsRunningError, name)
        lock = CheckpointLock(self._state / "locks", f"matched-events.{name}", running)
        lock.acquire()
        try:
            self._status = replace(self._status, state=State.WAITING, reason=SPARK_STARTS)
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
            try:
                # A process that never started a query commits nothing, because another may run.
                if self._running is not None:
                    start = self._find_start()
                    positions = self._commit(start.positions)
                    lags = lags_of(positions, self._running.source_ends())
                    self._status = replace(self._status, lags=lags)
                    self._count_sent(start, positions)
            except (BrokerUnreachableError, MatchedEventsRunningError, TopicMissingError) as error:
                _LOG.warning("%s: its last position is not committed: %s", name, error)
        finally:
            lock.release()

    def _delay_after(self, error: Exception) -> float | None:
        """Returns the delay before the next start in seconds, or ``None`` if there is no retry."""
        outcome = self._policy.after(error)
        if isinstance(outcome, Restart):
            self._status = replace(self._status, restarts=self._status.restarts + 1)
        return None if isinstance(outcome, Refuse | Fail) else outcome.seconds

    def _run_queries(self, spark: SparkSession) -> None:
        """Runs one Spark query after the other, until stopped."""
        ensure_query_topics(self._matched.config, self._matched.queries)
        rules: RuleColumns | None = None
        is_idle = False
        while not self._stop.is_set():
            if rules is None:
                newest = self._newest()
                rules = self._columns(self._rules(newest))
            if rules.rules.rows:
                is_idle = False
                rules = self._run_query(spark, rules, newest)
            else:
                # Once: it records that no query asks for events, so that queries which are
                # registered later begin with new ones.
                if not is_idle:
                    self._commit_start(rules.rules)
                rules, is_idle = None, True
                self._wait("no live query has MATCHED EVENTS EMIT", _NO_QUERIES_SECONDS)

    def _run_query(
        self, spark: SparkSession, columns: RuleColumns, newest: pa.Table
    ) -> RuleColumns | None:
        """Runs a Spark query until a reason ends it; returns the rules of the next, if known."""
        running = self._running = self._started(spark, columns)
        try:
            return self._watch(running, newest)
        except SourceChangedError as change:
            _LOG.info("%s: %s", self._status.name, change)
            return None
        finally:
            running.stop()

    def _rules(self, newest: pa.Table) -> EmittingRules:
        """Returns the rules of the queries that are registered now."""
        end = self._registry.end()
        self._read_to = end.position
        return EmittingRules.of(self._registry.at(end), newest, end)

    def _columns(self, rules: EmittingRules) -> RuleColumns:
        return RuleColumns.of(rules, self._matched.schema)

    def _started(self, spark: SparkSession, columns: RuleColumns) -> RunningQuery:
        start = self._commit_start(columns.rules)
        running = RunningQuery(
            spark,
            columns,
            self._matched,
            start,
            self._state / "state" / f"matched-events.{self._status.name}",
            has_short_batches=self._changes_often,
        )
        rules = columns.rules
        _LOG.info("%s: started with %d rows of queries", self._status.name, len(rules.rows))
        reason = ""
        if rules.left_out:
            reason = (
                f"{rules.left_out:,} queries match nothing: they differ from others in more than "
                f"constants, and {MAX_SHAPES:,} such shapes are possible"
            )
        self._status = replace(
            self._status,
            state=State.RUNNING,
            reason=reason,
            queries=len({row["query"] for row in rules.rows}),
        )
        self._show_rules(rules)
        return running

    def _commit_start(self, rules: EmittingRules) -> EmitterStart:
        """Commits the positions to continue at, with the queries of later events.

        Raises:
            MatchedEventsRunningError: if another process has committed since the last Spark query
                began.
        """
        # Committed before the Spark query starts: what it sends is behind the offsets at which a
        # scan begins, so a start after a crash finds all of it and sends none of it again.
        start = self._find_start()
        positions = self._commit(with_queries(start, rules, self._matched.schema_hash))
        self._count_sent(start, positions)
        return replace(start, positions=positions)

    def _find_start(self) -> EmitterStart:
        # Processes of two machines have no lock in common: the last to commit may continue.
        if self._running is not None:
            self._running.check_claim()
        start = find_start(self._matched)
        if start.is_first:
            _LOG.warning("%s: begins with new events: no position is known", self._status.name)
        for loss in start.losses:
            _LOG.error("%s: %s", self._status.name, loss)
        return start

    def _count_sent(
        self, start: EmitterStart, positions: Mapping[TopicPartition, EmitterPosition]
    ) -> None:
        """Counts what the previous Spark query has sent after its last commit."""
        if self._running is None:
            return
        # Records of an event that the topic no longer has are not counted again by the new start.
        newly_sent = max(0, start.records - self._running.already_sent)
        was_read = {source: at.offset for source, at in positions.items() if source in start.sent}
        read = self._status.read + sum(lags_of(self._running.positions, was_read).values())
        records = self._status.records + newly_sent
        self._status = replace(self._status, read=read, records=records)
        self._running = None

    def _commit(
        self, positions: Mapping[TopicPartition, EmitterPosition]
    ) -> dict[TopicPartition, EmitterPosition]:
        instance = self._status.instance
        own = {source: replace(at, instance=instance) for source, at in positions.items()}
        commit_positions(self._matched, own)
        return own

    def _watch(self, running: RunningQuery, newest: pa.Table) -> RuleColumns | None:
        """Commits completed batches of the Spark query, until there is a reason to end it.

        Returns:
            the rules of the next Spark query; ``None`` if the registry must be read again.
        """
        checked_at = time.monotonic()
        for lags in running.watch(self._stop, _LOOK_SECONDS, self._count):
            if isinstance(lags, BrokerUnreachableError):
                raise lags
            self._status = replace(self._status, lags=lags)
            if not running.query.is_active:
                break
            is_due = time.monotonic() - checked_at >= _CHECK_SECONDS
            if is_due:
                checked_at = time.monotonic()
            columns = self._next_columns(running, newest, is_due) if running.may_end else None
            if columns is not None:
                return columns
            self._observe(None)
        if running.query.failure is not None:
            raise running.query.failure
        return None

    def _next_columns(
        self, running: RunningQuery, newest: pa.Table, is_due: bool
    ) -> RuleColumns | None:
        """Returns the rules of the next Spark query, or ``None`` if the running one continues."""
        # Queries expire without a record in the topic of queries.
        if is_due or self._registry.end().position != self._read_to:
            rules, others = self._rules(newest), running.columns.rules
            if rules.identities != others.identities:
                self._changes_often = not running.has_ended_batches
                running.check()  # offsets of another topic are no ends of this one
                ends = {p.partition: end for p, end in running.source_ends().items()}
                return self._columns(rules.after(others, ends))
            running.note_registry(rules.registry)
            self._show_rules(rules)
        if running.has_short_batches and time.monotonic() - running.started_at >= _QUIET_SECONDS:
            self._changes_often = False
            return running.columns
        return None

    def _show_rules(self, rules: EmittingRules) -> None:
        offset, live = rules.registry.offset, rules.hash
        self._status = replace(self._status, registry_offset=offset, rules=live)

    def _count(self, done: DoneBatches | None) -> None:
        """Adds batches to the status whose positions were committed."""
        if done is not None:
            read, records = self._status.read + done.read, self._status.records + done.sent
            self._status = replace(self._status, read=read, records=records)

    def _wait(self, reason: str, seconds: float) -> None:
        if self._status.reason != reason:
            _LOG.warning("%s: waits: %s", self._status.name, reason)
        self._status = replace(self._status, state=State.WAITING, reason=reason)
        self._observe(None)
        self._stop.wait(seconds)


def _kind_of(error: Exception) -> FailureKind:
    # A deleted topic may be recreated soon, so its absence is retried like an outage.
    return FailureKind.UNAVAILABLE if isinstance(error, TopicMissingError) else kind_of(error)
