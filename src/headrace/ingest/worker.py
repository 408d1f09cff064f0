"""One worker process: its parts are made when its event loop runs, and ended before it does."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from headrace.ingest.acceptance import Acceptance
from headrace.ingest.app import Application
from headrace.ingest.body import Receive
from headrace.ingest.config import IngestConfig
from headrace.ingest.counters import Counters
from headrace.ingest.delivery import Delivery
from headrace.ingest.gate import Gate
from headrace.ingest.limits import FallbackLimiter, Limiter, LocalLimiter
from headrace.ingest.overdue import OverdueTopics
from headrace.ingest.registry import TokenRegistry
from headrace.ingest.request import Scope, Send
from headrace.ingest.service_metrics import LIMITED_LOCALLY, count_names
from headrace.ingest.spool import Loader, Spool, SpoolLimits
from headrace.ingest.spool_sender import SpoolSender
from headrace.settings import IngestSettings

COUNTS_FOLDER = "counts"
LIMITS_FILE = "limits"
OVERDUE_FILE = "overdue"
SPOOL_FOLDER = "spool"

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
        limiter = _limiter(config, counters)
        linger = config.settings.linger_seconds
        overdue = OverdueTopics.shared(config.state / OVERDUE_FILE, config.topics)
        delivery = Delivery(config.client, config.topics.values(), linger, overdue)
        gate = Gate(registry, limiter, config.settings)
        spooled = [name for name, topic in config.topics.items() if topic.spool]
        spool = Spool(config.state / SPOOL_FOLDER, _limits(config.settings)) if spooled else None
        acceptance = Acceptance(delivery, spool, spooled)
        self._application = Application(config, gate, acceptance, counters)
        stop_loading = _load(spool, SpoolSender(config.client, config.topics.values()))
        threading.Thread(target=self._end_with_parent, name="parent", daemon=True).start()
        # Events are gone with their request; the collector only looks for cycles.
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        drained = delivery.close(config.settings.drain_seconds)
        left, _ = await asyncio.gather(drained, asyncio.to_thread(stop_loading))
        if left:
            _LOG.warning("%d events were not confirmed; their clients were told so", left)
        if spool is not None:
            spool.close()
        registry.close()
        await limiter.close()
        counters.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _end_with_parent(self) -> None:
        """A worker whose server was killed would keep its port for ever."""
        while os.getppid() == self._parent:
            time.sleep(_PARENT_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)


def _limiter(config: IngestConfig, counters: Counters) -> Limiter:
    local = LocalLimiter(config.state / LIMITS_FILE)
    if config.settings.redis is None:
        return local
    from headrace.ingest.limits.redis import RedisLimiter  # its client is an extra

    remote = RedisLimiter(config.settings.redis, config.project)
    return FallbackLimiter(remote, local, lambda: counters.add((LIMITED_LOCALLY,)))


def _limits(settings: IngestSettings) -> SpoolLimits:
    age = timedelta(seconds=settings.spool_segment_seconds)
    return SpoolLimits(settings.spool_segment_bytes, age, settings.spool_budget_bytes)


def _load(spool: Spool | None, sender: SpoolSender) -> Callable[[], None]:
    """Replays the spool on a thread; gives what ends it. One worker of the host is at work."""
    if spool is None:
        return lambda: None
    loader, ending = Loader(spool, sender.send), threading.Event()
    thread = threading.Thread(target=loader.run, args=(ending,), name="spool", daemon=True)
    thread.start()

    def end() -> None:
        ending.set()
        thread.join()
        loader.close()
        sender.close()

    return end
