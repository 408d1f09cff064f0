"""One worker process: its parts are made when its event loop runs, and ended before it does."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
import time

from headrace.ingest.app import Application
from headrace.ingest.body import Receive
from headrace.ingest.config import IngestConfig
from headrace.ingest.counters import Counters
from headrace.ingest.delivery import Delivery
from headrace.ingest.gate import Gate
from headrace.ingest.limits import LocalLimiter
from headrace.ingest.registry import TokenRegistry
from headrace.ingest.request import Scope, Send
from headrace.ingest.service_metrics import count_names

COUNTS_FOLDER = "counts"
LIMITS_FILE = "limits"

_LOG = logging.getLogger("headrace.ingest")
_PARENT_SECONDS = 1.0
_COLLECT_AFTER = 100_000


class Worker:
    """ASGI's application with its lifespan.

    Drain: the server hands out no more requests, the open ones get their answers, and the events
    on their way to Kafka their confirmation, before the process ends.
    """

    def __init__(self, config: IngestConfig) -> None:
        self._config = config
        self._parent = os.getppid()
        self._application: Application | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request, or the worker's life."""
        if self._application is not None and scope["type"] == "http":
            await self._application(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        config = self._config
        await receive()
        counters = Counters(config.state / COUNTS_FOLDER, count_names(config.topics))
        registry = TokenRegistry(config.client)
        limiter = LocalLimiter(config.state / LIMITS_FILE)
        delivery = Delivery(config.client, config.topics.values())
        gate = Gate(registry, limiter, config.settings)
        self._application = Application(config, gate, delivery, counters)
        threading.Thread(target=self._end_with_parent, name="parent", daemon=True).start()
        # Events are gone with their request; the collector only looks for cycles.
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        left = await asyncio.to_thread(delivery.close, config.settings.drain_seconds)
        if left:
            _LOG.warning("%d events were not confirmed; their clients were told so", left)
        registry.close()
        limiter.close()
        counters.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _end_with_parent(self) -> None:
        """A worker whose server was killed would keep its port for ever."""
        while os.getppid() == self._parent:
            time.sleep(_PARENT_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)
