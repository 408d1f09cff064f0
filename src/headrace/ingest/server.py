"""The service of a host: worker processes on one port."""

from __future__ import annotations

import functools
import logging
import multiprocessing
import shutil
import time
from typing import Any

from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings
from granian.log import LogLevels

from headrace.errors import IngestFailedError
from headrace.ingest.config import IngestConfig
from headrace.ingest.draining import DrainNotice
from headrace.ingest.starts import WorkerStarts
from headrace.ingest.worker import COUNTS_FOLDER, LIMITS_FILE, OVERDUE_FILE, IngestProcess
from headrace.runtime.logs import log_to
from headrace.settings import IngestSettings

_LOG = logging.getLogger("headrace.ingest")
_GRANIAN = "_granian"
_RESTART_SECONDS = 1.0
_BUFFER_BYTES = 65_536


def serve(config: IngestConfig) -> None:
    """Serves until SIGTERM or SIGINT, then drains. Workers that end are replaced.

    Blocks, and must be called in the main thread: it handles signals.

    Raises:
        IngestFailedError: if workers can't start, after three tries of each.
    """
    # Kafka clients have threads, and a fork would copy the locks that those hold.
    multiprocessing.set_start_method("spawn", force=True)
    # Counts start at 0 with each service.
    shutil.rmtree(config.state / COUNTS_FOLDER, ignore_errors=True)
    # Their times count from the start of the machine, so after a reboot they would be wrong.
    for name in (LIMITS_FILE, OVERDUE_FILE):
        (config.state / name).unlink(missing_ok=True)
    _Service(config).run()


class _Service:
    def __init__(self, config: IngestConfig) -> None:
        self._config = config
        self._is_asked_to_end = False
        self._renew_server()
        self._starts = WorkerStarts(config.settings.workers, self._end)

    def run(self) -> None:
        try:
            while not self._served() and not self._starts.is_hopeless:
                # Granian ends when workers keep ending; we restart it, unless none can start.
                self._starts.note("a worker ended before it could report why")
                _LOG.error("Worker processes keep crashing, restarting the server")
                time.sleep(_RESTART_SECONDS)
                self._renew_server()
        finally:
            self._starts.close()
        if self._starts.is_hopeless:
            raise IngestFailedError(self._starts.failures, self._starts.reason)

    def _served(self) -> bool:
        """Serves, and returns whether the service was asked to end."""
        if self._is_asked_to_end:  # before this server was made
            return True
        configure_logs(self._config)
        address = f"{self._config.settings.host}:{self._config.settings.port}"
        _LOG.info("Serving http://%s with %d workers", address, self._config.settings.workers)
        loader = functools.partial(_worker, self._config, self._starts, self._notice)
        try:
            self._server.serve(target_loader=loader, wrap_loader=False)
        except SystemExit:
            return self._is_asked_to_end
        return True

    def _renew_server(self) -> None:
        self._notice = DrainNotice()
        self._server = _server(self._config.settings, self._notice)
        self._interrupt = self._server.signal_handler_interrupt
        # Stays in place between two servers, so that a signal ends the next one.
        self._server.signal_handler_interrupt = self._on_signal

    def _on_signal(self, *_: object) -> None:
        self._is_asked_to_end = True
        self._end()

    def _end(self) -> None:
        self._interrupt()


def _server(settings: IngestSettings, notice: DrainNotice) -> Any:
    server: Any = Granian(
        "headrace",
        address=settings.host,
        port=settings.port,
        interface=Interfaces.ASGI,
        workers=settings.workers,
        loop=Loops.uvloop,
        http=HTTPModes.http1,
        websockets=False,
        backlog=max(128, settings.max_connections),
        backpressure=max(1, settings.max_connections // settings.workers),
        http1_settings=HTTP1Settings(
            header_read_timeout=int(settings.header_seconds * 1000),
            # Headers beyond the limit must still fit, to be answered with 431.
            max_buffer_size=max(_BUFFER_BYTES, 2 * settings.max_header_bytes),
        ),
        log_level=LogLevels.warning,
        respawn_failed_workers=True,
        respawn_interval=0.1,
        # The drain ends by itself; only a worker that hangs is killed.
        workers_kill_timeout=int(settings.drain_seconds) + 5,
    )
    shut_down = server.shutdown

    def shutdown(exit_code: int = 0) -> None:
        notice.give()
        shut_down(exit_code)

    # Granian's own hooks are called once the workers have ended.
    server.shutdown = shutdown
    return server


def configure_logs(config: IngestConfig) -> None:
    """Logs to stderr and the project's log; called in each process, after Granian's own set-up."""
    log_to(config.log, stderr=True, others=(_GRANIAN,), log_format=config.log_format)
    logging.getLogger(_GRANIAN).setLevel(logging.WARNING)


def _worker(config: IngestConfig, starts: WorkerStarts, notice: DrainNotice) -> Any:
    """Makes the application, in the worker's process."""
    configure_logs(config)
    return IngestProcess(config, starts, notice)
