"""Reads the state of partitions that are assigned, before their first record is processed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

import msgspec
from confluent_kafka import KafkaException

from headrace.errors import BrokerUnreachableError, HeadraceError, StateRefusedError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.group.start_positions import StartPosition
from headrace.model import TopicPartition
from headrace.workers.declaration import Worker
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.lanes.partition_set import PartitionSet
from headrace.workers.lanes.threads import TaskThreads
from headrace.workers.state.changelog import StoredValues, read_state
from headrace.workers.state.timers import decoded_times
from headrace.workers.state.topic_check import check_partitions
from headrace.workers.tasks.state import StateForm

Read: TypeAlias = Callable[[Worker, ClientConfig, int], StoredValues]

_LOG = logging.getLogger("headrace.workers")
_AT_ONCE = 4  # each has a client of its own


def read_partition(worker: Worker, config: ClientConfig, number: int) -> StoredValues:
    """Returns what is stored of a partition, as :func:`read_state`.

    Raises:
        StateRefusedError: if records of a key may be in two partitions.
        HeadraceError: as :func:`read_state`.
    """
    check_partitions(worker, config)
    return read_state(config, TopicPartition(worker.state_topic, number))


class StateRestores:
    """Restores partitions beside those that are processed. On the event loop.

    Args:
        worker: with the state.
        config: of its cluster.
        assignments: of the instance.
        on_fatal: called with why a partition can't be restored, which ends the instance.
        read: what :func:`read_partition` is; called on threads.
        retry_seconds: the time between two attempts while brokers do not answer.
    """

    def __init__(
        self,
        worker: Worker,
        config: ClientConfig,
        assignments: PartitionSet,
        on_fatal: Callable[[BaseException], None],
        read: Read = read_partition,
        retry_seconds: float = 1.0,
    ) -> None:
        self._worker, self._config, self._assignments = worker, config, assignments
        self._on_fatal, self._read, self._retry_seconds = on_fatal, read, retry_seconds
        self._form = StateForm(worker.state)
        # Daemons: what waits for brokers must not keep the process alive.
        self._threads = TaskThreads(_AT_ONCE, f"{worker.name}-state")
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, assigned: AssignedPartition, start: StartPosition) -> None:
        """Pauses a new partition until its state is there."""
        self._assignments.backpressure.set_restoring(assigned, is_now=True)
        restoring = asyncio.get_running_loop().create_task(self._restore(assigned, start))
        self._running.add(restoring)
        restoring.add_done_callback(self._running.discard)

    def close(self) -> None:
        """Restores nothing any more."""
        for restoring in self._running:
            restoring.cancel()
        self._threads.shutdown(wait=False)

    async def _restore(self, assigned: AssignedPartition, start: StartPosition) -> None:
        while self._is_here(assigned):
            try:
                stored = await self._stored(assigned, start)
            except (BrokerUnreachableError, KafkaException) as error:
                _LOG.warning(
                    "%s: cannot restore the state of %s, retrying in %.0f s: %s",
                    self._worker.name,
                    assigned.partition,
                    self._retry_seconds,
                    error,
                )
                await asyncio.sleep(self._retry_seconds)
            except HeadraceError as error:
                if self._is_here(assigned):
                    self._on_fatal(error)
                return
            else:
                self._use(assigned, stored)
                return

    async def _stored(self, assigned: AssignedPartition, start: StartPosition) -> StoredValues:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, lambda: self._checked(assigned.partition, start)
        )

    def _checked(self, partition: TopicPartition, start: StartPosition) -> StoredValues:
        """Returns what is stored, if it is of the start and can be read. On a thread.

        Raises:
            StateRefusedError: if it is not.
        """
        worker, number = self._worker, partition.partition
        stored = self._read(worker, self._config, number)
        fault = _fault(stored, start) or self._undecodable(stored)
        if fault:
            raise StateRefusedError(worker.name, f"{worker.state_topic}[{number}]", fault)
        return stored

    def _undecodable(self, stored: StoredValues) -> str:
        for key, value in stored.values.items():
            try:
                self._form.decode(value)
            except msgspec.DecodeError as error:
                return f"the value of key {key!r} can't be read as the declared type: {error}"
        for key, times in stored.timers.items():
            try:
                decoded_times(times)
            except msgspec.DecodeError as error:
                return f"the timers of key {key!r} can't be read: {error}"
        return ""

    def _use(self, assigned: AssignedPartition, stored: StoredValues) -> None:
        if not self._is_here(assigned) or assigned.state is None:
            return
        assigned.state.restore(stored)
        self._assignments.backpressure.set_restoring(assigned, is_now=False)
        _LOG.info(
            "%s: restored %d keys of %s", self._worker.name, len(stored.values), assigned.partition
        )

    def _is_here(self, assigned: AssignedPartition) -> bool:
        return self._assignments.get(assigned.partition) is assigned


def _fault(stored: StoredValues, start: StartPosition) -> str:
    """Returns why what is stored is not the state at ``start``; empty: it is."""
    position = stored.position
    if position is None and stored.keys:
        return "it has values, and does not say at which offset"
    if position is None:
        # Only what instances commit has metadata: not a start at the end, and no reset.
        is_new = not start.metadata
        return "" if is_new else f"it is empty, and the group committed offset {start.position}"
    if not position.is_of(start):
        return (
            f"it is the state at offset {position.offset}, and the group's offset is "
            f"{start.position}"
        )
    return ""
