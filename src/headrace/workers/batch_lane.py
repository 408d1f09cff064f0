"""A lane whose task takes many records at once, as Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.workers.handling import Handling
from headrace.workers.lane import Lane, LaneHost
from headrace.workers.placement import Call, PlacedTask
from headrace.workers.policy import FailurePolicy
from headrace.workers.task import WorkerSubpartition, arrow_batch

if TYPE_CHECKING:
    import pyarrow as pa


class BatchLane(Lane):
    """Takes what waits, up to ``most`` records. When a batch fails, its records go one by one."""

    def __init__(  # noqa: PLR0913 - a lane's, and how it takes records
        self,
        subpartition: WorkerSubpartition,
        task: PlacedTask,
        host: LaneHost,
        policy: FailurePolicy,
        config: Mapping[str, Any],
        *,
        process_batch: Call,
        most: int,
    ) -> None:
        super().__init__(subpartition, task, host, policy, config)
        self._process_batch, self._most = process_batch, most
        self._batch: list[Handling] = []

    @property
    def in_process(self) -> int:
        """Records of the batch, as long as it is."""
        return len(self._batch)

    async def _handle(self, handling: Handling) -> None:
        self._batch = [handling]
        while self._queue and len(self._batch) < self._most:
            self._batch.append(self._queue.popleft())
        records = arrow_batch([one.record for one in self._batch])
        error = await self._attempt(handling, self._process_all(handling, records))
        if error is not None and self._is_lost(error):
            raise error
        batch, self._batch = self._batch, []
        for one in batch:
            if error is None:
                self._finish(one)
            elif not self._draining.is_set():
                await super()._handle(one)

    async def _process_all(self, first: Handling, records: pa.RecordBatch) -> None:
        await self._process_batch(records)
        await first.confirm_sends()
