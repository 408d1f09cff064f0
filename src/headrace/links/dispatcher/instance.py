"""An instance of a dispatcher: a Spark session, and in it a query for each target."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import DispatcherFailedError, DispatcherRunningError, HeadraceError
from headrace.links.dispatcher.routes.route import DispatcherRoute
from headrace.links.dispatcher.routes.route_run import RouteRun
from headrace.links.dispatcher.status import DispatcherStatus, RouteStatus
from headrace.spark.lock import CheckpointLock
from headrace.spark.session import SPARK_STARTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.settings import RestartSettings

_OBSERVE_SECONDS = 0.5


class DispatcherInstance:
    """Dispatches to some or all targets until it is stopped, or all have failed. Used once.

    Args:
        name: of the dispatcher.
        routes: its targets.
        session: opens the Spark session.
        restart: how often, and after how long, a query that failed is started again.
        state: the project's folder on this machine.
        once: end when what the topic holds now is sent.
    """

    def __init__(
        self,
        name: str,
        routes: Sequence[DispatcherRoute],
        session: Callable[[], AbstractContextManager[SparkSession]],
        restart: RestartSettings,
        state: Path,
        *,
        once: bool = False,
    ) -> None:
        self._name, self._routes, self._session, self._restart = name, routes, session, restart
        self._state, self._once = state, once
        self._stop = threading.Event()
        self._runs: list[RouteRun] = []

    def stop(self) -> None:
        """Stops all targets. May be called on any thread."""
        self._stop.set()

    def run(self, observe: Callable[[None], None]) -> None:
        """Runs the targets; ``observe`` is called twice a second.

        Raises:
            DispatcherRunningError: if another process of this machine dispatches to a target.
            HeadraceError: the first error that has ended a target, once all have ended.
        """
        with ExitStack() as stack:
            # Before Spark starts, which takes seconds: a second instance is refused at once.
            for route in self._routes:
                site = route.target_site
                running = partial(DispatcherRunningError, self._name, site)
                name = f"dispatcher.{self._name}.{site}"
                lock = CheckpointLock(self._state / "locks", name, running)
                lock.acquire()
                stack.callback(lock.release)
            observe(None)
            spark = stack.enter_context(self._session())
            self._runs = [self._run_of(spark, route) for route in self._routes]
            threads = [
                threading.Thread(target=run.run, name=f"to {run.status.site}", daemon=True)
                for run in self._runs
            ]
            for thread in threads:
                thread.start()
            try:
                while any(thread.is_alive() for thread in threads) and not self._stop.is_set():
                    observe(None)
                    self._stop.wait(_OBSERVE_SECONDS)
            finally:
                for run in self._runs:  # all first: queries end at the same time
                    run.stop()
                for thread in threads:
                    thread.join()
        failures = [(run.status, run.failure) for run in self._runs if run.failure is not None]
        if failures and (self._once or len(failures) == len(self._runs)):
            status, failure = failures[0]
            if isinstance(failure, HeadraceError):
                raise failure
            raise DispatcherFailedError(self._name, status.site, status.reason) from failure

    def status(self) -> DispatcherStatus:
        """Returns the status of the instance and its targets."""
        routes = [run.status for run in self._runs] or [
            RouteStatus(route.target_site, reason=SPARK_STARTS) for route in self._routes
        ]
        return DispatcherStatus.of(self._name, {route.site: route for route in routes})

    def _run_of(self, spark: SparkSession, route: DispatcherRoute) -> RouteRun:
        folder = self._state / "state" / f"dispatcher.{self._name}" / route.target_site

        def cores() -> int:
            # Executors of a cluster come one after the other.
            return int(spark.sparkContext.defaultParallelism) // len(self._routes)

        return RouteRun(spark, route, self._restart, folder, cores, once=self._once)
