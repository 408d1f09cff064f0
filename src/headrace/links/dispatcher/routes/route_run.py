"""One target of a dispatcher: its query is started, watched, and restarted after a failure."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import (
    BrokerUnreachableError,
    DispatcherCoresError,
    DispatcherRunningError,
)
from headrace.kafka.read.resume import SourceChangedError
from headrace.links.dispatcher.declaration import DispatchMode
from headrace.links.dispatcher.positions import (
    commit_positions,
    committed_positions,
    find_starts,
    live_topic,
)
from headrace.links.dispatcher.routes.query import route_query
from headrace.links.dispatcher.routes.refused import find_refused, refusal_of
from headrace.links.dispatcher.routes.route import DispatcherRoute
from headrace.links.dispatcher.routes.sent import sent_since
from headrace.links.dispatcher.status import RouteStatus
from headrace.links.starts import RefusedRecords, Starts
from headrace.links.target import check_clusters, naming_site
from headrace.links.timing import LinkTiming
from headrace.model import TopicPartition
from headrace.runtime.clock import now_in_ms
from headrace.runtime.instance_name import process_name
from headrace.service.restart import Fail, Refuse, RestartPolicy, Wait
from headrace.service.status import State
from headrace.spark.claimed_query import ClaimedQuery, Claims, CommittedPosition
from headrace.spark.failures import headline, kind_of
from headrace.spark.topic_query import DoneBatches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.settings import RestartSettings

_LOG = logging.getLogger("headrace.dispatcher")
_LOG.addHandler(logging.NullHandler())  # silent unless the application asks for it
LOOK_AGAIN_SECONDS = LinkTiming().check_seconds
_SETTLE_SECONDS = 1.0  # what a query that was stopped has in flight reaches the target


class RouteRun:
    """Dispatches to one target until it is stopped, or fails. On a thread of its own.

    Args:
        spark: the session of all targets.
        route: which target.
        restart: how often, and after how long, a query that failed is started again.
        folder: of the driver's machine, for what this target's queries write there.
        cores: returns how many cores Spark has for this target.
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
        sites = route.source_site, route.target_site
        self._claims = Claims(
            route.source,
            route.target,
            route.copy_of,
            live=lambda: [live_topic(route, site) for site in sites],
            readable=lambda _: self._find_starts().positions.keys(),
            committed=partial(committed_positions, route),
            commit=partial(commit_positions, route),
            commit_seconds=route.commit_seconds,
            taken_by=partial(DispatcherRunningError, route.dispatcher, route.target_site),
            at_source=partial(naming_site, route.source_site),
            at_target=partial(naming_site, route.target_site),
        )
        self._policy = RestartPolicy(restart, kind_of, has_end=once)
        self._refused_records = RefusedRecords(LinkTiming())
        self._stop = threading.Event()
        self._instance = f"{process_name()}-{uuid.uuid4().hex[:8]}"
        self._starts = 0
        self.poll_seconds = 1.0
        self.failure: Exception | None = None
        self.status = RouteStatus(route.target_site)

    def stop(self) -> None:
        """Stops the query; the next start reads at the target what was sent. For any thread."""
        self._stop.set()

    def run(self) -> None:
        """Runs queries of the target until it is stopped or has failed, see :attr:`failure`."""
        while not self._stop.is_set():
            try:
                self._run_query()
            except SourceChangedError as change:
                _LOG.info("%s: %s", self._name, change)
                self._stop.wait(_SETTLE_SECONDS)
            except Exception as error:  # noqa: BLE001 - other targets continue
                delay = self._delay_after(error)
                if delay is None:
                    self.failure = error
                    self._set(State.FAILED, headline(error))
                    return
                self._stop.wait(delay)
            else:
                break
        self._set(State.STOPPED, "")

    @property
    def _name(self) -> str:
        return f"{self._route.dispatcher} to {self._route.target_site}"

    def _delay_after(self, error: Exception) -> float | None:
        """Returns the seconds to the next start after an error, ``None``: no start follows."""
        outcome = self._policy.after(error)
        if isinstance(outcome, Fail) or (self._once and not isinstance(outcome, Wait)):
            return None
        state, delay = State.REFUSED, LOOK_AGAIN_SECONDS
        if not isinstance(outcome, Refuse):
            state, delay = State.WAITING, max(outcome.seconds, _SETTLE_SECONDS)
        if self.status.reason != headline(error):
            _LOG.warning("%s: %s: %s", self._name, state.value, headline(error))
        self._set(state, headline(error))
        return delay

    def _run_query(self) -> None:
        route = self._route
        own, other = (route.source_site, route.source), (route.target_site, route.target)
        copies = {route.topic: route.target_topic}
        check_clusters("dispatcher", route.dispatcher, copies, own, other)
        starts = self._find_starts()
        if not starts.positions:
            raise next(iter(starts.refused.values()))
        partitions, cores = len(starts.positions), self._cores()
        # In real-time mode each partition keeps its core: one more would wait for ever.
        needs_cores = route.mode is DispatchMode.REAL_TIME and not self._once
        if needs_cores and partitions > cores:
            names = route.dispatcher, route.target_site
            raise DispatcherCoresError(*names, partitions, cores)
        query = self._started(starts.positions)
        try:
            for lags in query.watch(self._stop, self.poll_seconds, self._count):
                self._show(lags)
            if (failure := query.query.failure) is not None:
                if refusal_of(failure) is None:
                    raise failure
                self._refuse_records(query.positions)
                raise SourceChangedError("the target does not take a record") from failure
            if not query.query.is_active:  # it has sent all that there is of what it reads
                for refusal in starts.refused.values():
                    raise refusal
        finally:
            query.stop()

    def _find_starts(self) -> Starts[CommittedPosition]:
        """Returns where partitions continue, and shows which ones are refused."""
        starts = self._refused_records.left_out_of(find_starts(self._route))
        refused = {source.path: str(why) for source, why in sorted(starts.refused.items())}
        for name, why in refused.items():
            if name not in self.status.refused:
                _LOG.error("%s: %s", self._name, why)
        self.status = replace(self.status, refused=refused)
        return starts

    def _started(
        self, starts: Mapping[TopicPartition, CommittedPosition]
    ) -> ClaimedQuery[CommittedPosition]:
        route = self._route
        target_id = live_topic(route, route.target_site).topic_id
        positions = {source: replace(at, instance=self._instance) for source, at in starts.items()}
        commit_positions(route, positions)
        sent = sent_since(route, positions)
        query = ClaimedQuery(
            self._claims,
            positions,
            target_id,
            {source: records.end for source, records in sent.items()},
            partial(route_query, self._spark, route, sent, once=self._once),
            self._folder,
        )
        self._starts += 1
        self.status = replace(self.status, restarts=self._starts - 1, committed_ms=now_in_ms())
        self._set(State.RUNNING, "")
        return query

    def _show(self, lags: Mapping[str, int] | BrokerUnreachableError) -> None:
        """Updates the status. While a site does not respond, the query continues."""
        if isinstance(lags, BrokerUnreachableError):
            if self.status.state is State.RUNNING:
                _LOG.warning("%s: waits: %s", self._name, headline(lags))
            self._set(State.WAITING, headline(lags))
            return
        self.status = replace(self.status, lags=lags)
        if self.status.state is not State.RUNNING:
            _LOG.info("%s: continues", self._name)
            self._set(State.RUNNING, "")

    def _count(self, done: DoneBatches | None) -> None:
        if done is not None:
            read, records = self.status.read + done.read, self.status.records + done.sent
            self.status = replace(self.status, read=read, records=records)
        self.status = replace(self.status, committed_ms=now_in_ms())

    def _refuse_records(self, positions: Mapping[TopicPartition, CommittedPosition]) -> None:
        """Excludes partitions whose next record the target does not take; others continue."""
        _LOG.warning("%s: looks for the record that the target does not take", self._name)
        refused = find_refused(self._spark, self._route, positions, self._folder, self._stop.wait)
        for source, rejection in refused.items():
            self._refused_records.add(source, self._route.record_error(source, rejection))

    def _set(self, state: State, reason: str) -> None:
        self.status = replace(self.status, state=state, reason=reason)
