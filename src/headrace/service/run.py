"""Runs a service in this process, and publishes its status: a file, metrics, an observer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from headrace.errors import RefusedError
from headrace.runtime.prometheus import MetricsServer, serving
from headrace.service.metrics import exposition
from headrace.service.status import ServiceStatus, State, Status, StatusFolder

_LOG = logging.getLogger("headrace.service")
_LOG.addHandler(logging.NullHandler())  # silent unless the application asks for it
# Less than a second: of a service that observes itself every second, each status is published.
_PUBLISH_SECONDS = 0.9
AnyStatus = TypeVar("AnyStatus", bound=ServiceStatus, covariant=True)  # noqa: PLC0105


class Service(Protocol[AnyStatus]):
    """A long-running service, such as an instance of a mirror. Used once."""

    def stop(self) -> None:
        """Ends :meth:`run` after the work in progress. May be called on any thread."""

    def run(self, observe: Callable[[ServiceStatus | None], None]) -> None:
        """Runs until it is stopped, or raises why it can't continue.

        Args:
            observe: called on the thread of ``run`` at least once a second. A service that reports
                its own end calls it with that status.
        """

    def status(self) -> AnyStatus:
        """Returns the current status.

        Called on the thread of ``run``: before it, in ``observe``, and at its end.
        """


@dataclass(frozen=True)
class RunOptions:
    """Options of a run.

    Attributes:
        metrics_host: the address at which its metrics are served.
        metrics_port: the port; ``None``: they are not served.
    """

    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None


class ServiceRun(Generic[Status]):
    """A service in this process, and the publisher of its status. Used once.

    Args:
        service: the service to run.
        folder: the folder of its status; ``None``: it belongs to no project, and has none.
        options: options of the run.
    """

    def __init__(
        self, service: Service[Status], folder: StatusFolder[Status] | None, options: RunOptions
    ) -> None:
        self._service, self._folder, self._options = service, folder, options
        self._has_written = False

    def stop(self) -> None:
        """Stops the service. May be called on any thread."""
        self._service.stop()

    def run(self, observe: Callable[[Status], None]) -> None:
        """Runs the service; calls ``observe`` with its status every second and at the end.

        If another process already runs this service, it is refused, and neither writes nor deletes
        a status.

        Raises:
            ServerStartError: if the port of the metrics is taken.
            Exception: as :meth:`Service.run`.
        """
        with serving(self._options.metrics_host, self._options.metrics_port) as server:
            self._run(observe, server)

    def _run(self, observe: Callable[[Status], None], server: MetricsServer | None) -> None:
        published_at = 0.0
        name = self._service.status().name

        def show(status: Status) -> None:
            self._write(status)
            if server is not None:
                server.publish(exposition(type(status), [status]))
            observe(status)

        def observed(status: ServiceStatus | None) -> None:
            nonlocal published_at
            is_last = status is not None and status.has_ended
            if is_last or time.monotonic() - published_at >= _PUBLISH_SECONDS:
                published_at = time.monotonic()
                show(self._service.status())

        _LOG.info("%s: starts", name)
        try:
            self._service.run(observed)
        except BaseException as error:
            reason = str(error) or type(error).__name__
            last = self._service.status()
            # The status of a service that was refused before its start would hide the running one.
            is_refused = isinstance(error, RefusedError) and error.runs_elsewhere
            if not last.has_ended and (self._has_written or not is_refused):
                self._write(last.ended(State.FAILED, reason))
            _LOG.error("%s: failed: %s", name, reason)
            raise
        last = self._service.status()
        if not last.has_ended:
            show(last.ended(State.STOPPED))
        _LOG.info("%s: stopped", name)

    def _write(self, status: Status) -> None:
        """Writes the status; the first one replaces those of ended instances."""
        if self._folder is None:
            return
        if not self._has_written:
            # Not before: an instance that is silent while Spark starts would be taken for ended.
            self._folder.forget(status.name)
            self._has_written = True
        self._folder.write(status)
