"""Partitions that an operator has paused: kept in a changelog, which every instance follows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable

from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.table.changelog import ensure_changelog, write_changelog
from headrace.kafka.table.topic_table import TableFollower, read_table
from headrace.model import TopicPartition
from headrace.runtime.clock import now_in_ms

CONTROL_TOPIC = "_headrace.control"
"""Compacted. Keys: ``worker/<name>/<topic>/<partition>``; no value: not paused."""

_READY_SECONDS = 60.0  # the topic is small: longer means that brokers are unreachable

SetRequested = Callable[[Iterable[TopicPartition]], None]


class PauseRequests:
    """The partitions of one worker that an operator has paused, as they change.

    Created on the event loop, and used there.
    """

    def __init__(self, config: ClientConfig, worker: str) -> None:
        self._worker, self._config = worker, config
        self._loop = asyncio.get_running_loop()
        self._paused: set[TopicPartition] = set()
        self._set_requested: SetRequested | None = None
        self._follower = TableFollower(config, CONTROL_TOPIC, self._on_change)

    async def wait_ready(self) -> None:
        """Returns when all earlier requests are known; at once when there never was one.

        Raises:
            AuthorizationError: if reading the topic is not allowed.
            BrokerUnreachableError: if the brokers do not answer.
        """
        if await asyncio.to_thread(describe, self._config, [CONTROL_TOPIC]):
            await asyncio.to_thread(self._follower.wait_ready, _READY_SECONDS)

    def subscribe(self, set_requested: SetRequested) -> None:
        """Calls ``set_requested`` with the partitions to pause: now, and when they change."""
        self._set_requested = set_requested
        set_requested(self._paused)

    async def close(self) -> None:
        """Stops following the topic."""
        self._set_requested = None
        await asyncio.to_thread(self._follower.close)

    def _on_change(self, key: bytes, value: bytes | None) -> None:
        """Hands a change to the event loop; runs on the follower's thread."""
        partition = _partition(key, self._worker)
        if partition is not None:
            self._loop.call_soon_threadsafe(self._apply, partition, value is not None)

    def _apply(self, partition: TopicPartition, paused: bool) -> None:
        change = self._paused.add if paused else self._paused.discard
        change(partition)
        if self._set_requested is not None:
            self._set_requested(self._paused)


def paused(config: ClientConfig, worker: str) -> set[TopicPartition]:
    """Returns the partitions of ``worker`` that an operator has paused.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    requested = (_partition(key, worker) for key in read_table(config, CONTROL_TOPIC))
    return {partition for partition in requested if partition is not None}


def pause(config: ClientConfig, worker: str, partitions: Iterable[TopicPartition]) -> None:
    """Pauses partitions in every instance of ``worker``, after restarts too, until they resume.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        KafkaException: if it was not written, or it is not known whether it was.
    """
    since = json.dumps({"paused_ms": now_in_ms()}).encode()
    ensure_changelog(config, CONTROL_TOPIC)
    write_changelog(
        config, CONTROL_TOPIC, {_key(worker, partition): since for partition in partitions}
    )


def resume(config: ClientConfig, worker: str, partitions: Iterable[TopicPartition]) -> None:
    """Withdraws the request to pause partitions. Raises the errors of :func:`pause`."""
    changes = {_key(worker, partition): None for partition in partitions}
    if changes:
        write_changelog(config, CONTROL_TOPIC, changes)


def _key(worker: str, partition: TopicPartition) -> bytes:
    return f"worker/{worker}/{partition.topic}/{partition.partition}".encode()


def _partition(key: bytes, worker: str) -> TopicPartition | None:
    """Returns the partition that ``key`` names, if it is one of ``worker``."""
    text = key.decode(errors="replace")
    if not text.startswith(f"worker/{worker}/"):
        return None
    topic, _, number = text.removeprefix(f"worker/{worker}/").rpartition("/")
    return TopicPartition(topic, int(number)) if topic and number.isdecimal() else None
