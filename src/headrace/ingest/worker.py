"""One worker process: its parts are created when its event loop runs, and closed before it ends."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import os
import signal
import threading
import time
from datetime import timedelta

from headrace.ingest.application import Application
from headrace.ingest.config import IngestConfig
from headrace.ingest.draining import DrainNotice
from headrace.ingest.events.delivery import Delivery
from headrace.ingest.events.event_store import EventStore
from headrace.ingest.events.overdue import OverdueTopics
from headrace.ingest.events.spool_sender import SpoolSender
from headrace.ingest.events.topic_watch import TopicWatch, live_topics
from headrace.ingest.figures.account_slots import AccountSlots
from headrace.ingest.figures.counters import Counters
from headrace.ingest.figures.service_metrics import LIMITED_LOCALLY, PRODUCER_QUEUE, count_names
from headrace.ingest.http.body import Receive
from headrace.ingest.http.request import Scope, Send
from headrace.ingest.http.request_guard import RequestGuard
from headrace.ingest.limits import FallbackLimiter, Limiter, LocalLimiter
from headrace.ingest.spool.spool import SpoolLimits
from headrace.ingest.spool.topic_spools import SPOOL_FOLDER, TopicSpools
from headrace.ingest.starts import WorkerStarts
from headrace.ingest.tokens.known import KnownTokens
from headrace.ingest.tokens.registry import TokenRegistry
from headrace.kafka.read.cluster import KafkaCluster
from headrace.runtime.error_text import exc_info
from headrace.topics.spreads.following import FollowedSpreads, SpreadsReader

COUNTS_FOLDER = "counts"
ACCOUNTS_FILE = "accounts"
LIMITS_FILE = "limits"
OVERDUE_FILE = "overdue"
SPREADS_FILE = "spreads"
TOKENS_FILE = "tokens"
TOPICS_FILE = "topics"

_LOG = logging.getLogger("headrace.ingest")
_PARENT_SECONDS = 1.0  # a worker whose server has died keeps the port for this long
_QUEUE_SECONDS = 1.0
# Requests leave no cycles, so the collector would take time and find nothing.
_COLLECT_AFTER = 100_000


class IngestProcess:
    """ASGI's application with its lifespan.

    Drain: the server hands out no more requests, the open ones get their answers, streams of
    results end, and the events on their way to Kafka get their confirmation, before the process
    ends.
    """

    def __init__(self, config: IngestConfig, starts: WorkerStarts, notice: DrainNotice) -> None:
        self._config, self._starts, self._notice = config, starts, notice
        self._parent = os.getppid()
        self._application: Application | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or runs the worker from its start to its end (ASGI's lifespan)."""
        # Without parts it does not serve: the start has failed.
        if self._application is not None and scope["type"] == "http":
            await self._application(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            parts = _Parts(self._config)
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker must not serve
            await self._fail(error, send)
            return
        self._application = parts.application
        self._notice.call_when_given(parts.application.drain)
        threading.Thread(target=self._end_with_parent, name="parent", daemon=True).start()
        # Events are freed with their request; the collector only looks for cycles.
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER)
        await send({"type": "lifespan.startup.complete"})
        self._starts.succeeded()
        _LOG.info("This worker serves %s", ", ".join(self._config.topics))
        await receive()
        _LOG.info("This worker drains, within %g s", self._config.settings.drain_seconds)
        await parts.close()
        _LOG.info("This worker is closed")
        await send({"type": "lifespan.shutdown.complete"})

    async def _fail(self, error: Exception, send: Send) -> None:
        """Reports why the start failed, and ends after a delay; another worker is started then."""
        delay = self._starts.delay_seconds()
        _LOG.error(
            "This worker cannot start; another one is started in %g s",
            delay,
            exc_info=exc_info(error),
        )
        self._starts.failed(f"{type(error).__name__}: {error}")
        # The server replaces the worker when it ends, so the delay must come before.
        await asyncio.sleep(delay)
        await send({"type": "lifespan.startup.failed"})

    def _end_with_parent(self) -> None:
        """Ends this worker when its server has died: it would keep the port forever."""
        # Not by the drain notice: it comes too where the server lives, and waits for this worker.
        while os.getppid() == self._parent:
            time.sleep(_PARENT_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)


class _Parts:
    """The parts of a worker, created in its event loop.

    Raises:
        HeadraceError, OSError: if one of them can't be created.
    """

    def __init__(self, config: IngestConfig) -> None:
        self._config = config
        topics = config.topics
        max_accounts = config.settings.metrics_accounts
        counts = config.state / COUNTS_FOLDER
        self._counters = Counters(counts, count_names(topics, max_accounts))
        self._accounts = AccountSlots(counts / ACCOUNTS_FILE, max_accounts)
        self._registry = TokenRegistry(config.client)
        self._limiter = _limiter(config, self._counters)
        overdue = OverdueTopics.shared(config.state / OVERDUE_FILE, topics)
        linger = config.settings.linger_seconds
        self._delivery = Delivery(config.client, topics.values(), linger, overdue)
        self._tokens = KnownTokens(self._registry, config.state / TOKENS_FILE)
        gate = RequestGuard(self._tokens, self._limiter, config.settings)
        spooled = [name for name, topic in topics.items() if topic.spool]
        segment_age = timedelta(seconds=config.settings.spool_segment_seconds)
        limits = SpoolLimits(
            config.settings.spool_segment_bytes, segment_age, config.settings.spool_budget_bytes
        )
        self._spools = TopicSpools(config.state / SPOOL_FOLDER, limits, spooled)
        look = functools.partial(live_topics, config.client, list(topics))
        self._watch = TopicWatch(topics, look, config.state / TOPICS_FILE)
        acceptance = EventStore(self._delivery, self._spools, self._watch)
        reader = SpreadsReader(KafkaCluster(config.client))
        self._spreads = FollowedSpreads(topics.values(), reader, file=config.state / SPREADS_FILE)
        figures = self._counters, self._accounts
        self.application = Application(config, gate, acceptance, *figures, self._spreads)
        self._watch.start()
        self._spreads.start()
        self._spools.load(lambda: SpoolSender(config.client, topics.values()).send)
        self._note_queue()

    async def close(self) -> None:
        """Closes the parts; events on their way to Kafka are confirmed first."""
        drained = self._delivery.close(self._config.settings.drain_seconds)
        left, _ = await asyncio.gather(drained, asyncio.to_thread(self._spools.close))
        if left:
            _LOG.warning(
                "%d events were not acknowledged at shutdown; their clients received 503", left
            )
        self._noting.cancel()
        # The counters go last: the parts before them count until they are closed.
        self._watch.close()
        self._spreads.close()
        self._tokens.close()
        self._registry.close()
        await self._limiter.close()
        self.application.close()
        self._accounts.close()
        self._counters.close()

    def _note_queue(self) -> None:
        self._counters.put((PRODUCER_QUEUE,), self._delivery.waiting)
        loop = asyncio.get_running_loop()
        self._noting = loop.call_later(_QUEUE_SECONDS, self._note_queue)


def _limiter(config: IngestConfig, counters: Counters) -> Limiter:
    local = LocalLimiter(config.state / LIMITS_FILE)
    if config.settings.redis is None:
        return local
    from headrace.ingest.limits.redis import RedisLimiter  # its client is an extra

    remote = RedisLimiter(config.settings.redis, config.project)
    return FallbackLimiter(remote, local, lambda: counters.add((LIMITED_LOCALLY,)))
