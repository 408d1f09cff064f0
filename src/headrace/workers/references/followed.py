"""The references of an instance that runs: each topic is followed on a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from headrace.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    HeadraceError,
    ReferencesTooLargeError,
    RegistryUnreachableError,
)
from headrace.kafka.client.admin_requests import LiveTopic, describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.table.topic_table import TableFollower
from headrace.workers.references.table import ReferenceTables, WorkerReference
from headrace.workers.timing import WorkerTiming

if TYPE_CHECKING:
    from headrace.kafka.read.range_reader import Record
    from headrace.workers.declaration import Worker

_LOG = logging.getLogger("headrace.workers")
_POLL_SECONDS = 0.02


class FollowedReferences:
    """Follows the references of a worker. Created on the event loop, and used there.

    Attributes:
        tables: what tasks look values up in.
    """

    def __init__(
        self, worker: Worker, config: ClientConfig, timing: WorkerTiming = WorkerTiming()
    ) -> None:
        self._worker, self._config, self._timing = worker, config, timing
        self._loop = asyncio.get_running_loop()
        self._failure: HeadraceError | None = None
        self._on_fatal: Callable[[BaseException], None] | None = None
        self._is_answered = True
        self.tables = ReferenceTables(worker)
        self._followed = [
            _Followed(table, config, self._is_within_limit, timing)
            for table in self.tables.tables.values()
        ]

    async def wait_ready(self, is_stopped: Callable[[], bool]) -> bool:
        """Returns whether all were read to their end; ``False`` if the instance was stopped.

        Raises:
            AuthorizationError: if reading a topic is not allowed.
            BrokerUnreachableError: if no record comes for a minute.
            ReferencesTooLargeError: if they are larger than the worker allows.
        """
        taken, since = -1, 0.0
        while unread := [followed for followed in self._followed if not followed.table.is_read]:
            failures = [self._failure, *(followed.refusal for followed in unread)]
            for failure in failures:
                if failure is not None:
                    raise failure
            if is_stopped():
                return False
            now, count = self._loop.time(), sum(followed.table.taken for followed in unread)
            if count != taken or any(followed.waits for followed in unread):
                taken, since = count, now
            elif now - since > self._timing.reference_seconds:
                names = ", ".join(followed.table.topic.name for followed in unread)
                reason = f"{names}: not read to its end, and no record came for {now - since:.0f} s"
                raise BrokerUnreachableError(self._config.get("bootstrap.servers", ""), reason)
            await asyncio.sleep(_POLL_SECONDS)
        return True

    def subscribe(self, on_fatal: Callable[[BaseException], None]) -> None:
        """Calls ``on_fatal`` with an error that ends the instance: now, or when it comes."""
        self._on_fatal = on_fatal
        if self._failure is not None:
            on_fatal(self._failure)

    async def watch(self) -> None:
        """Has topics that were recreated, or have more partitions, read again; without an end."""
        names = [followed.table.topic.name for followed in self._followed]
        while names:
            await asyncio.sleep(self._timing.topic_check_seconds)
            try:
                live = await asyncio.to_thread(describe, self._config, names)
            except (HeadraceError, KafkaException) as error:
                self._is_answered = False
                _LOG.warning(
                    "%s: cannot describe the topics of its references, retrying in %.0f s: %s",
                    self._worker.name,
                    self._timing.topic_check_seconds,
                    error,
                )
            else:
                self._is_answered = True
                for followed in self._followed:
                    followed.compare(live.get(followed.table.topic.name))

    def figures(self) -> dict[str, Any]:
        """Returns the figures, by the names of :class:`WorkerStatus`."""
        tables = self.tables.tables.values()
        return {
            "reference_keys": sum(len(table.snapshot) for table in tables),
            "reference_bytes": sum(table.bytes for table in tables),
            "references_behind": sum(
                followed.is_behind or not self._is_answered for followed in self._followed
            ),
            "rejected_references": sum(table.rejected for table in tables),
        }

    async def close(self) -> None:
        """Stops following the topics."""
        self._on_fatal = None
        for followed in self._followed:
            followed.ending.set()
        await asyncio.gather(*(asyncio.to_thread(followed.close) for followed in self._followed))

    def _is_within_limit(self) -> bool:
        """Returns whether more records may be taken; called by the threads of the followers."""
        if self._failure is not None:
            return False
        tables = self.tables.tables.values()
        size = sum(table.bytes for table in tables)
        if size <= self._worker.reference_bytes:
            return True
        self._failure = ReferencesTooLargeError(
            self._worker.name,
            ", ".join(table.topic.name for table in tables),
            size,
            self._worker.reference_bytes,
        )
        self._loop.call_soon_threadsafe(self._end)
        return False

    def _end(self) -> None:
        if self._on_fatal is not None and self._failure is not None:
            self._on_fatal(self._failure)


class _Followed:
    """One topic, and its table.

    Attributes:
        table: that the topic is read into.
        ending: set when the instance ends.
        waits: whether a record waits for the schema registry.
    """

    def __init__(
        self,
        table: WorkerReference,
        config: ClientConfig,
        is_within_limit: Callable[[], bool],
        timing: WorkerTiming,
    ) -> None:
        self.table, self.ending, self.waits = table, threading.Event(), False
        self._is_there = True
        self._is_within_limit, self._timing = is_within_limit, timing
        self._follower = TableFollower(
            config,
            table.topic.name,
            self._take,
            on_start=table.restart,
            on_ready=table.publish,
            value_of=lambda record: record,
        )

    @property
    def is_behind(self) -> bool:
        return self.waits or not (self._is_there and self._follower.is_at_end)

    @property
    def refusal(self) -> AuthorizationError | None:
        failure = self._follower.failure
        return failure if isinstance(failure, AuthorizationError) else None

    def compare(self, live: LiveTopic | None) -> None:
        self._is_there = live is not None
        if live is not None:
            self._follower.compare(live)

    def close(self) -> None:
        self._follower.close()

    def _take(self, key: bytes, record: Record | None) -> None:
        """Applies a record; runs on the follower's thread, which waits for schemas."""
        while not self.ending.is_set():
            try:
                self.table.take(key, record)
            except RegistryUnreachableError as error:
                self.waits = True
                _LOG.warning(
                    "Cannot read the schema of a record of %s, retrying in %.0f s: %s",
                    self.table.topic.name,
                    self._timing.reference_retry_seconds,
                    error,
                )
                self.ending.wait(self._timing.reference_retry_seconds)
            else:
                self.waits = False
                if not self._is_within_limit():
                    self.ending.set()  # takes no more: the instance ends
                break
