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

from headrace.ingest.config import IngestConfig
from headrace.ingest.worker import COUNTS_FOLDER, LIMITS_FILE, OVERDUE_FILE, Worker

_LOG = logging.getLogger("headrace.ingest")
_RESTART_SECONDS = 1.0
_BUFFER_BYTES = 65_536


def serve(config: IngestConfig) -> None:
    """Serves until SIGTERM or SIGINT, then drains. Workers that end are replaced.

    Blocks, and must be called in the main thread: it handles signals.
    """
    # Kafka clients have threads, and a fork would copy the locks that those hold.
    multiprocessing.set_start_method("spawn", force=True)
    shutil.rmtree(config.state / COUNTS_FOLDER, ignore_errors=True)
    # Their times are those since the machine was started.
    for name in (LIMITS_FILE, OVERDUE_FILE):
        (config.state / name).unlink(missing_ok=True)
    while not _served(config):
        # Workers that keep ending make Granian give up; we do not.
        _LOG.error("workers keep ending; starting the service anew")
        time.sleep(_RESTART_SECONDS)


def _served(config: IngestConfig) -> bool:
    """True when it was asked to end."""
    settings = config.settings
    server = Granian(
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
            max_buffer_size=max(_BUFFER_BYTES, 2 * settings.max_header_bytes),
        ),
        log_level=LogLevels.warning,
        respawn_failed_workers=True,
        respawn_interval=0.1,
        workers_kill_timeout=int(settings.drain_seconds) + 5,
    )
    try:
        server.serve(target_loader=functools.partial(_worker, config), wrap_loader=False)
    except SystemExit:
        return False
    return True


def _worker(config: IngestConfig) -> Any:
    """In the worker's process."""
    return Worker(config)
