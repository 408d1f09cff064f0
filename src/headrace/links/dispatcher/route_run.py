"""One target of a dispatcher, from its start to its end: started, looked at, started again."""

from __future__ import annotations

import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import (
    BrokerUnreachableError,
    DispatcherCoresError,
    DispatcherRunningError,
    RefusedError,
)
from headrace.kafka.client.client import latest_offsets
from headrace.kafka.read.log_cuts import Seen
from headrace.links.dispatcher.declaration import DispatchMode
from headrace.links.dispatcher.position import CommittedPosition
from headrace.links.dispatcher.positions import (
    commit_positions,
    committed_positions,
    find_starts,
    live_topic,
)
from headrace.links.dispatcher.query import route_query
from headrace.links.dispatcher.refused import find_refused, refusal_of
from headrace.links.dispatcher.route import DispatcherRoute
from headrace.links.dispatcher.sent import sent_since
from headrace.links.dispatcher.status import RouteStatus
from headrace.links.instance import SourceChangedError
from headrace.links.refused_records import RefusedRecords
from headrace.links.source_epochs import source_epochs
from headrace.links.starts import Starts
from headrace.links.target import naming_site
from headrace.links.timing import LinkTiming
from headrace.model import TopicPartition
from headrace.runtime.clock import now_in_ms
from headrace.runtime.instance_name import process_name
from headrace.service.restart import Fail, Refuse, RestartPolicy, Wait
from headrace.service.status import State
from headrace.spark.failures import headline, kind_of
from headrace.spark.topic_query import DoneBatches, KafkaQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.settings import RestartSettings

_LOG = logging.getLogger("headrace.dispatcher")
_LOG.addHandler(logging.NullHandler())  # silent unless the application asks for it
_CHECK_SECONDS = 10.0  # so long a recreated topic, or a second instance, may go unnoticed
LOOK_AGAIN_SECONDS = LinkTiming().check_seconds
_SETTLE_SECONDS = 1.0  # what a query that was stopped has in flight reaches the target


@dataclass
class _Running:
    """A query, and what is known of it.

    Attributes:
        query: that runs.
        positions: that are committed.
        refused: partitions that the query does not read, and why.
        ends: of the target's partitions, as of the last look.
        target_id: the topic id of the target's topic.
        committed_at: when the positions were committed.
        checked_at: when it was looked whether it still reads what it should.
    """

    query: KafkaQuery
    positions: dict[TopicPartition, CommittedPosition]
    refused: Mapping[TopicPartition, RefusedError]
    ends: Mapping[TopicPartition, int]
    target_id: str
    committed_at: float
    checked_at: float


class RouteRun:
    """Dispatches to one target until it is stopped, or fails. On a thread of its own.

    Args:
        spark: the session of all targets.
        route: which target.
        restart: how often, and after how long, a query that failed is started again.
        folder: of the driver's machine, for what this target's queries write there.
        cores: tells how many cores Spark has for this target.
        once: end when what the topic holds now is sent.

    Attributes:
        poll_seconds: how long it waits before it looks at the query again.
    """

    def __init__(
        self,
        spark: SparkSession,
        route: DispatcherRoute,
        restart: RestartSettings,
        folder: Path,
        cores: Callable[[], int],
        *,
        once: bool,
    ) -> None:
        self._spark, self._route, self._folder, self._once = spark, route, folder, once
        self._cores = cores
        self._policy = RestartPolicy(restart, kind_of, has_end=once)
        self._refused_records = RefusedRecords(LinkTiming())
        self._stop = threading.Event()
        self._instance = f"{process_name()}-{uuid.uuid4().hex[:8]}"
        self._starts = 0
        self.poll_seconds = 1.0
        self.failure: Exception | None = None
        self.status = RouteStatus(route.target_site)

    def stop(self) -> None:
        """Ends it; the next start reads at the target what was sent. From any thread."""
        self._stop.set()

    def run(self) -> None:
        """Runs it; an error that ends it is in :attr:`failure`."""
        while not self._stop.is_set():
            try:
                self._run_query()
            except SourceChangedError as change:
                _LOG.info("%s: %s", self._name, change)
                self._stop.wait(_SETTLE_SECONDS)
            except Exception as error:  # noqa: BLE001 - whatever it was, other targets go on
                if not self._goes_on_after(error):
                    self.failure = error
                    self._set(State.FAILED, headline(error))
                    return
            else:
                break
        self._set(State.STOPPED, "")

    @property
    def _name(self) -> str:
        return f"{self._route.dispatcher} to {self._route.target_site}"

    def _goes_on_after(self, error: Exception) -> bool:
        """Waits for the next start; whether there is one."""
        state, delay = self._state_after(error)
        if delay is None:
            return False
        if self.status.reason != headline(error):
            _LOG.warning("%s: %s: %s", self._name, state.value, headline(error))
        self._set(state, headline(error))
        self._stop.wait(delay)
        return True

    def _state_after(self, error: Exception) -> tuple[State, float | None]:
        """What the target is in after an error, and how long to the next start; None: no more."""
        outcome = self._policy.after(error)
        if isinstance(outcome, Fail) or (self._once and not isinstance(outcome, Wait)):
            return State.FAILED, None
        if isinstance(outcome, Refuse):
            return State.REFUSED, LOOK_AGAIN_SECONDS
        return State.WAITING, max(outcome.seconds, _SETTLE_SECONDS)

    def _run_query(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)  # also what a killed process left
        self._folder.mkdir(parents=True)
        try:
            running = self._start()
            try:
                self._watch(running)
            finally:
                running.query.stop()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> _Running:
        route = self._route
        starts = self._refused_records.left_out_of(find_starts(route))
        self._note_refused(starts)
        if not starts.positions:
            raise next(iter(starts.refused.values()))
        self._check_cores(len(starts.positions))
        target_id = live_topic(route, route.target_site).topic_id
        ends = self._ends(map(route.copy_of, starts.positions))
        positions = {
            source: replace(at, instance=self._instance) for source, at in starts.positions.items()
        }
        commit_positions(route, positions)
        sent = sent_since(route, positions)
        offsets = {source: at.offset for source, at in positions.items()}
        query = route_query(self._spark, route, offsets, sent, self._folder, once=self._once)
        self._starts += 1
        self.status = replace(self.status, restarts=self._starts - 1, committed_ms=now_in_ms())
        self._set(State.RUNNING, "")
        now = time.monotonic()
        return _Running(query, positions, starts.refused, ends, target_id, now, now)

    def _check_cores(self, partitions: int) -> None:
        """Raises where a partition would wait for a core that others keep for themselves."""
        route, cores = self._route, self._cores()
        needs_cores = route.mode is DispatchMode.REAL_TIME and not self._once
        if needs_cores and partitions > cores:
            raise DispatcherCoresError(route.dispatcher, route.target_site, partitions, cores)

    def _note_refused(self, starts: Starts[CommittedPosition]) -> None:
        refused = {source.path: str(why) for source, why in sorted(starts.refused.items())}
        for name, why in refused.items():
            if name not in self.status.refused:
                _LOG.error("%s: %s", self._name, why)
        self.status = replace(self.status, refused=refused)

    def _watch(self, running: _Running) -> None:
        """Commits what the query has done, until it ends or is stopped.

        While a site does not respond, the query goes on: its own clients wait for it.
        """
        while True:
            is_active = running.query.is_active
            try:
                self._look(running)
            except BrokerUnreachableError as error:
                if self._once and not is_active:
                    raise
                self._wait_for_site(error)
            if not is_active:
                self._end(running)
                return
            if self._stop.is_set():
                return
            self._stop.wait(self.poll_seconds)

    def _end(self, running: _Running) -> None:
        """Raises why a query has ended, unless it was to end and has sent all that there is."""
        if (failure := running.query.failure) is not None:
            if refusal_of(failure) is None:
                raise failure
            self._refuse_records(running.positions)
            raise SourceChangedError("the target does not take a record") from failure
        for refusal in running.refused.values():
            raise refusal

    def _look(self, running: _Running) -> None:
        ends = self._ends(running.ends)
        done = running.query.progress()
        age = time.monotonic() - running.committed_at
        if done is not None or age > self._route.commit_seconds:
            self._commit(running, done)
        running.ends = ends
        if time.monotonic() - running.checked_at > _CHECK_SECONDS:
            running.checked_at = time.monotonic()
            self._check(running)
        self.status = replace(self.status, lags=self._lags(running))
        if self.status.state is not State.RUNNING:
            _LOG.info("%s: continues", self._name)
            self._set(State.RUNNING, "")

    def _wait_for_site(self, error: BrokerUnreachableError) -> None:
        if self.status.state is State.RUNNING:
            _LOG.warning("%s: waits: %s", self._name, headline(error))
        self._set(State.WAITING, headline(error))

    def _commit(self, running: _Running, done: DoneBatches | None) -> None:
        """Copies of what comes next are behind the ends as they were before the batch was done.

        Without a batch, the positions are committed again: brokers forget old ones.
        """
        self._check_claim(running)
        positions = running.positions
        seen = {source: Seen(at.offset, at.epoch) for source, at in positions.items()}
        with naming_site(self._route.source_site):
            epochs = source_epochs(self._route.source, seen)
        if done is not None:
            positions = {
                source: replace(
                    positions[source],
                    offset=offset,
                    scan_from=running.ends[self._route.copy_of(source)],
                    epoch=epochs[source],
                )
                for source, offset in done.positions.items()
            }
        commit_positions(self._route, positions)
        running.positions, running.committed_at = positions, time.monotonic()
        if done is not None:
            running.query.acknowledge(done)
            read, records = self.status.read + done.read, self.status.records + done.sent
            self.status = replace(self.status, read=read, records=records)
        self.status = replace(self.status, committed_ms=now_in_ms())

    def _lags(self, running: _Running) -> dict[str, int]:
        with naming_site(self._route.source_site):
            ends = latest_offsets(self._route.source, running.positions)
        return {
            source.path: max(ends[source][0] - at.offset, 0)
            for source, at in running.positions.items()
        }

    def _check_claim(self, running: _Running) -> None:
        """Raises where the positions at the target are not the ones that this instance committed.

        Another instance that has begun has read what this one had sent. A topic that was recreated
        has none.
        """
        route = self._route
        known = committed_positions(route, running.positions)
        target = live_topic(route, route.target_site)
        if target.topic_id != running.target_id or known.keys() != running.positions.keys():
            raise SourceChangedError(f"topic {route.target_topic} was deleted and recreated")
        for at in known.values():
            if at.instance != self._instance:
                raise DispatcherRunningError(route.dispatcher, route.target_site, at.instance)

    def _check(self, running: _Running) -> None:
        """Raises where a topic is not the one that the query began with, or has more to read."""
        self._check_claim(running)
        route = self._route
        topic_ids = {at.topic_id for at in running.positions.values()}
        topic = live_topic(route, route.source_site)
        if {topic.topic_id} != topic_ids:
            raise SourceChangedError(f"topic {route.topic} was deleted and recreated")
        if topic.partitions > len(running.positions):
            starts = self._refused_records.left_out_of(find_starts(route))
            self._note_refused(starts)
            if starts.positions.keys() - running.positions.keys():
                raise SourceChangedError(f"topic {route.topic} has further partitions to read")

    def _refuse_records(self, positions: Mapping[TopicPartition, CommittedPosition]) -> None:
        """Leaves partitions out whose next record the target does not take; the others go on."""
        _LOG.warning("%s: looks for the record that the target does not take", self._name)
        refused = find_refused(self._spark, self._route, positions, self._folder, self._stop.wait)
        for source, rejection in refused.items():
            self._refused_records.add(source, self._route.record_error(source, rejection))

    def _ends(self, copies: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        with naming_site(self._route.target_site):
            ends = latest_offsets(self._route.target, list(copies))
        return {copy: end for copy, (end, _) in ends.items()}

    def _set(self, state: State, reason: str) -> None:
        self.status = replace(self.status, state=state, reason=reason)
