"""The side table of a pipeline on the driver: its commits, before those of the main table.

Its rows are late events, or the unmatched events of a :class:`~headrace.Join`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from headrace.errors import CheckpointBehindTableError
from headrace.pipelines.batch.commit_rows import Reject, commit_rows
from headrace.pipelines.batch.positions import CheckpointIds, Recorded
from headrace.pipelines.start.checkpoint import PlannedBatch
from headrace.sinks.api import CommitResult, SinkDriver, Transaction

_LOG = logging.getLogger("headrace.pipelines")
_NOTHING = CommitResult(is_new=False, rows=0)


class SideTable:
    """Commits events of batches into the side table, once where it records positions.

    Only batches with such events are committed, so the positions of the main table can't serve: a
    batch is known by the number of its checkpoint and Spark's batch id.
    """

    def __init__(self, ids: CheckpointIds, sink: SinkDriver) -> None:
        self._ids = ids
        self._sink = sink
        self._recorded: Recorded | None = None

    def commit(
        self, pieces: Sequence[str], planned: PlannedBatch, watermark_us: int, reject: Reject
    ) -> CommitResult:
        """Makes the events of a batch visible, unless it holds them already.

        Raises:
            CheckpointBehindTableError: if it holds batches that the checkpoint does not know of.
            SinkError: if nothing is committed, or it is not known whether it was.
        """
        if not pieces:
            return _NOTHING
        if self.holds(planned):
            _LOG.info("Batch %d: its side table was committed before", planned.batch_id)
            self.discard(pieces)
            return _NOTHING
        done = commit_rows(self._sink, pieces, self._transaction(planned), watermark_us, reject)
        self._recorded = Recorded(self._ids.number, planned.batch_id)
        return done

    def discard(self, pieces: Sequence[str]) -> None:
        """Deletes what tasks wrote for a batch that fails or was committed before."""
        if pieces:
            self._sink.discard(pieces)

    def figures(self) -> Mapping[str, int | str]:
        """Returns what happens beside its commits."""
        return self._sink.figures()

    def close(self, max_wait_seconds: float) -> None:
        """Closes the sink."""
        self._sink.close(max_wait_seconds)

    def holds(self, planned: PlannedBatch) -> bool:
        """Whether it holds the events of a batch.

        Raises:
            CheckpointBehindTableError: if it holds batches that the checkpoint does not know of.
        """
        recorded = self._known().batch_id
        if recorded is not None and recorded > planned.batch_id:
            reason = f"its side table has rows of batch {recorded}"
            raise CheckpointBehindTableError(self._ids.pipeline, "", "", "", reason)
        return recorded == planned.batch_id

    def _known(self) -> Recorded:
        if self._recorded is None:
            store = self._sink.positions
            self._recorded = Recorded(None, None)
            if store is not None:
                self._recorded = self._ids.recorded(store, {})
            self._ids.check_newest(self._recorded.newest)
        return self._recorded

    def _transaction(self, planned: PlannedBatch) -> Transaction:
        # Such a sink has the rows of a repeated batch twice: it is AT_LEAST_ONCE.
        if self._sink.positions is None:
            return Transaction({}, {})
        ids, recorded = self._ids, self._known()
        return Transaction(
            {ids.newest: ids.number, ids.batch: planned.batch_id},
            {ids.newest: recorded.newest, ids.batch: recorded.batch_id},
            {**ids.writer, "checkpoint": ids.number, "batch": planned.batch_id},
        )
