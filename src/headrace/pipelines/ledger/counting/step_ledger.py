"""Counts the rows that a step drops, in the tasks that run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.ledger.sums import Fate, Hop, Sums
from headrace.pipelines.late_data.batch_watermark import rows_behind, watermark_us
from headrace.pipelines.ledger.counting.row_lineage import LINEAGE, RowLineage, RowTally
from headrace.pipelines.ledger.sums import LedgerLine
from headrace.pipelines.source.staging import Staging, StepReport
from headrace.spark.remote_errors import raising_remote_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    Keep = Callable[[Iterator[pa.Array]], Iterator[pa.Array]]

_BATCH_ID = "streaming.sql.batchId"
_KEPT = "_headrace_kept"


@dataclass(frozen=True)
class StepLedger:
    """What one step of a pipeline reports to the ledger; picklable, as it travels to the tasks.

    Each task leaves a file with its sums, under a name of its own: the batch, the step, Spark's
    stage and the partition in it. So an attempt that is repeated replaces what the first one left.
    The files count with the entry of their batch. A task whose rows were not read to their end
    leaves no file, and its dropped rows are missing at the hop ``steps``.

    Attributes:
        staging: the folder of the run.
        step: number of the step in its pipeline.
        topics: of the pipeline's sources.
        drops_behind: whether an operator with state drops rows behind the watermark. They are taken
            out, and counted, before it otherwise.
    """

    staging: Staging
    step: int
    topics: tuple[str, ...]
    drops_behind: bool = False

    def without(self, rows: DataFrame, is_dropped: Column, fate: Fate) -> DataFrame:
        """Returns ``rows`` without those for which ``is_dropped`` is true, which get ``fate``.

        Only the column :data:`LINEAGE` of the dropped rows goes to Python. Rows without that
        column, after a step that does not pass it on, are not counted.

        Args:
            rows: to drop some of.
            is_dropped: a condition; rows for which it is null stay.
            fate: that the ledger counts of them.
        """
        from pyspark.sql import functions as F  # noqa: N812

        if LINEAGE not in rows.columns:
            return rows.where(~F.coalesce(is_dropped, F.lit(False)))
        return kept_rows(rows, F.when(is_dropped, F.col(LINEAGE)), self._dropping(fate))

    def around(
        self,
        rows: DataFrame,
        step: Callable[[DataFrame], DataFrame],
        fate: Fate,
        event_time: str | None = None,
    ) -> DataFrame:
        """Returns what ``step`` makes of ``rows``; those that it does not give have a fate.

        The column :data:`LINEAGE` of all rows goes to Python, before the step and after it. A row
        that the step gives several times counts as less than none.

        Args:
            rows: that the step gets.
            step: passes on the column :data:`LINEAGE` as it is, and gives rows of a batch with it.
            fate: that the ledger counts of the difference.
            event_time: of rows that do not reach the step's operator if they are behind the
                watermark: they do not have ``fate``. None: it keeps no state.
        """
        from pyspark.sql import functions as F  # noqa: N812

        if LINEAGE not in rows.columns:
            return step(rows)
        time = F.lit(None).cast("timestamp") if event_time is None else F.col(event_time)
        passed = kept_rows(rows, F.struct(F.col(LINEAGE), time), self._entering(fate))
        return kept_rows(step(passed), F.col(LINEAGE), self._leaving(fate))

    def put(self, lines: Sequence[LedgerLine], side: str = "") -> None:
        """Leaves the sums of this task; called in it once, when it has seen its last row.

        Args:
            lines: the sums.
            side: of the step, where it counts at several places.
        """
        if lines:
            put_step(self.staging, f"{self.step}{side}", StepReport(tuple(lines)))

    def _dropping(self, fate: Fate) -> Keep:
        def count(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
            tally = RowTally(self.topics)
            with raising_remote_errors():
                for lineage in batches:
                    tally.add(Hop.STEPS, fate, RowLineage.of(lineage.drop_null()))
                    yield lineage.is_null()
                self.put(tally.lines())

        return count

    def _entering(self, fate: Fate) -> Keep:
        """Counts what goes into a step: lineage and event time, as a struct."""

        def count(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
            tally = RowTally(self.topics)
            with raising_remote_errors():
                for batch in batches:
                    lineage, times = batch.flatten()
                    rows, is_behind = RowLineage.of(lineage), rows_behind(times, watermark_us())
                    tally.add(Hop.STEPS, fate, rows.take(np.flatnonzero(~is_behind)))
                    if self.drops_behind:
                        tally.add(Hop.STEPS, Fate.DROPPED, rows.take(np.flatnonzero(is_behind)))
                    yield lineage.is_valid()
                self.put(tally.lines(), "before")

        return count

    def _leaving(self, fate: Fate) -> Keep:
        """Subtracts what comes out of a step."""

        def count(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
            tally = RowTally(self.topics)
            with raising_remote_errors():
                for lineage in batches:
                    tally.add(Hop.STEPS, fate, RowLineage.of(lineage))
                    yield lineage.is_valid()
                self.put(
                    [LedgerLine(line.key, Sums() - line.sums) for line in tally.lines()], "after"
                )

        return count


def put_step(staging: Staging, part: str, report: StepReport) -> None:
    """Leaves the report of the task that this is called in, once, when it has seen its last row.

    Args:
        staging: the folder of the run.
        part: of the query: a name that no other one has which leaves a report in the same stage.
        report: what it leaves.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    batch_id = None if task is None else task.getLocalProperty(_BATCH_ID)
    if task is None or batch_id is None:
        raise RuntimeError("rows are counted in a batch of a pipeline, and not otherwise")
    staging.put_step(int(batch_id), f"{part}-{task.stageId()}-{task.partitionId()}", report)


def kept_rows(rows: DataFrame, value: Column, is_kept: Keep) -> DataFrame:
    """Returns the rows for which a function of a value of theirs, called in the tasks, is true."""
    import pyarrow as pa
    from pyspark.sql import functions as F  # noqa: N812

    # Spark takes the kind of a function from its annotations, and can't resolve texts with `pa`.
    is_kept.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
    # Else Spark may evaluate it twice, or in another stage than the step's.
    called = F.arrow_udf(is_kept, "boolean").asNondeterministic()
    return rows.withColumn(_KEPT, called(value)).where(F.col(_KEPT)).drop(_KEPT)
