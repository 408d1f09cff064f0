"""A lane whose task takes many records at once, as Arrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.runtime.extras import require_extra
from headrace.workers.lanes.attempt import RecordAttempt
from headrace.workers.lanes.bound_task import BoundTask, Call
from headrace.workers.lanes.context import LaneContext
from headrace.workers.lanes.lane import Lane
from headrace.workers.tasks.task import WorkerSubpartition, arrow_batch

if TYPE_CHECKING:
    import pyarrow as pa


class BatchLane(Lane):
    """Takes up to ``batch_records`` that wait. Records of a failed batch are tried one by one."""

    def __init__(
        self,
        subpartition: WorkerSubpartition,
        task: BoundTask,
        context: LaneContext,
        finished: Callable[[Lane, RecordAttempt], None],
        *,
        process_batch: Call,
    ) -> None:
        require_extra("spark")  # pyarrow
        super().__init__(subpartition, task, context, finished)
        self._process_batch = process_batch
        self._batch: list[RecordAttempt] = []
        self._alone = 0  # how many of the queue's first records failed as a batch

    @property
    def in_process(self) -> int:
        """Records of the batch, as long as it is."""
        return len(self._batch) or super().in_process

    async def _handle(self, attempt: RecordAttempt) -> None:
        if self._alone or attempt.error is not None:
            self._alone = max(0, self._alone - 1)
            await super()._handle(attempt)
            return
        self._batch = [attempt]
        while self._next_goes_along():
            self._batch.append(self._queue.popleft())
        records = arrow_batch([attempt.record for attempt in self._batch])
        error = await self._attempt(attempt, self._process_all(attempt, records))
        batch, self._batch = self._batch, []
        if error is None:
            for ended in batch:
                self._finish(ended)
        elif self._still_runs_on_thread(attempt, error):
            raise error
        else:
            # Reset: what the batch sent, and its deadline, are not of a record that is tried alone.
            self._queue.extendleft(attempt.reset() for attempt in reversed(batch))
            self._alone = len(batch)

    def _next_goes_along(self) -> bool:
        if not self._queue or len(self._batch) >= self._context.worker.batch_records:
            return False
        following = self._queue[0]
        return self._accepts(following) and following.error is None

    def _put_first(self, attempt: RecordAttempt) -> None:
        super()._put_first(attempt)
        self._alone += 1

    async def _process_all(self, first: RecordAttempt, records: pa.RecordBatch) -> None:
        await self._process_batch(records)
        await first.confirm_sends()
