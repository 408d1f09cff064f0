"""Runs an instance of standing queries in this process, and publishes its status."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from headrace.control.project import LoadedProject
from headrace.control.query_instance_status import (
    QueryInstanceStatus,
    QueryStatusFolder,
    query_exposition,
)
from headrace.control.query_registry import matched_topics
from headrace.control.services import broker_config
from headrace.control.transfer_run import TransferRunOptions
from headrace.errors import QueriesUnmatchedError
from headrace.queries.declaration import StandingQueries
from headrace.queries.instance.instance import AggregatorInstance, AggregatorStatus
from headrace.runtime.prometheus import serving
from headrace.transfer.status import TransferState

_LOG = logging.getLogger("headrace.queries")
_OBSERVE_SECONDS = 1.0  # the status is published at this interval


class QueryRun:
    """One instance in this process, and the publisher of its status. Used once.

    Args:
        instance: the instance to run.
        folder: the folder of its status file.
        options: options of the run, such as the port of the metrics.
    """

    def __init__(
        self, instance: AggregatorInstance, folder: QueryStatusFolder, options: TransferRunOptions
    ) -> None:
        self._instance, self._folder, self._options = instance, folder, options

    def stop(self) -> None:
        """Stops the instance once it has written a snapshot. May be called on any thread."""
        self._instance.stop()

    def run(self, observe: Callable[[QueryInstanceStatus], None]) -> None:
        """Runs the instance until it is stopped; calls ``observe`` every second and at the end.

        Raises:
            ServerStartError: if the port of the metrics is taken.
            HeadraceError, KafkaException: as :meth:`AggregatorInstance.run`.
        """
        last = instance_status(self._instance.status())
        self._folder.forget(last.queries)
        seen_at = 0.0
        with serving(self._options.metrics_host, self._options.metrics_port) as server:

            def show(status: QueryInstanceStatus) -> None:
                self._folder.write(status)
                if server is not None:
                    server.publish(query_exposition(status))
                observe(status)

            def seen(status: AggregatorStatus) -> None:
                nonlocal last, seen_at
                last = instance_status(status)
                if time.monotonic() - seen_at >= _OBSERVE_SECONDS:
                    seen_at = time.monotonic()
                    show(last)

            _LOG.info("%s: begins", last.queries)
            try:
                self._instance.run(seen)
            except BaseException as error:
                reason = str(error) or type(error).__name__
                self._folder.write(_ended(last, TransferState.FAILED, reason))
                _LOG.error("%s: failed: %s", last.queries, reason)
                raise
            show(_ended(last, TransferState.STOPPED, ""))
            _LOG.info("%s: stopped, %d results written", last.queries, last.results)


def query_run(
    project: LoadedProject, queries: StandingQueries, options: TransferRunOptions
) -> QueryRun:
    """Returns an instance of standing queries that is ready to run.

    Raises:
        QueriesUnmatchedError: if no pipeline matches events with them.
        BrokerUnreachableError: if the embedded broker was never started.
    """
    topics = matched_topics(project, queries.name)
    if not topics:
        raise QueriesUnmatchedError(queries.name)
    schemas = {name: topic.schema for name, topic in topics.items() if topic.schema is not None}
    config = broker_config(project.settings, may_be_down=True)
    instance = AggregatorInstance(config, queries, schemas)
    return QueryRun(instance, QueryStatusFolder(project.settings), options)


def instance_status(status: AggregatorStatus) -> QueryInstanceStatus:
    """Returns the status of an instance in the form that is published."""
    return QueryInstanceStatus(
        queries=status.queries,
        state=TransferState.WAITING if status.waiting else TransferState.RUNNING,
        reason=status.waiting,
        records=status.records,
        results=status.results,
        windows=status.windows,
        owned=status.partitions,
        uncovered=status.uncovered,
        late=status.late,
        unbalanced=status.unbalanced,
        event_ms={topic: event_us // 1000 for topic, event_us in status.event_us.items()},
        faulty=status.faulty,
    )


def _ended(last: QueryInstanceStatus, state: TransferState, reason: str) -> QueryInstanceStatus:
    updated_ms = time.time_ns() // 1_000_000
    return replace(last, state=state, reason=reason, owned=(), updated_ms=updated_ms)
