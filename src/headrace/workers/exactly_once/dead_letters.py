"""Dead letters that are written in the transaction of their record."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from headrace.errors import RecordRejectedError
from headrace.kafka.client.admin_requests import topic_ids
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.dead_letters.letters import dead_letter_record
from headrace.kafka.dead_letters.writer import without_headers
from headrace.model import DeadLetter, TopicPartition
from headrace.workers.declaration import Worker
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.tasks.task import Send


class HeldDeadLetters:
    """Sends dead letters as tasks send records. No letter is written twice, so none is looked up.

    On the event loop.
    """

    def __init__(self, worker: Worker, config: ClientConfig, send: Send) -> None:
        self._worker, self._config, self._send = worker, config, send
        self._ids: dict[str, str] = {}

    def on_rebalance(self, here: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Needs no partitions."""

    async def write(self, letter: DeadLetter) -> None:
        """Returns when ``letter`` waits for the transaction of its record.

        Raises:
            BrokerUnreachableError, SinkError, TopicMissingError: if its topic does not take it.
        """
        origin = letter.partition.topic
        # A topic that is recreated ends the instance, so an id is asked for once.
        if origin not in self._ids:
            self._ids |= await asyncio.to_thread(topic_ids, self._config, [origin])
        try:
            await self._sent(letter)
        except RecordRejectedError as error:
            # A letter without headers is better than none.
            await self._sent(without_headers(letter, error))

    async def _sent(self, letter: DeadLetter) -> None:
        topic_id = self._ids.get(letter.partition.topic, "")
        record = dead_letter_record(letter, self._worker.name, self._worker.version, topic_id)
        await self._send(record.topic, record.value, key=record.key, headers=record.headers)
