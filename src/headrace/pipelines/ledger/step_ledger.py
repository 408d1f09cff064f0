"""Counts the rows that a step drops, in the tasks that run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.pipelines.ledger.row_facts import FACTS, RowFacts, RowTally
from headrace.pipelines.ledger.sums import Fate, Hop, LedgerLine
from headrace.pipelines.remote_errors import raising_remote_errors
from headrace.pipelines.source.staging import Staging

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_BATCH_ID = "streaming.sql.batchId"
_KEPT = "_headrace_kept"


@dataclass(frozen=True)
class StepLedger:
    """What one step of a pipeline tells the ledger; picklable, as it travels to the tasks.

    Each task leaves a file with its sums, under a name of its own: the batch, the step, Spark's
    stage and the partition in it. So an attempt that is repeated replaces what the first one left.
    The files count with the entry of their batch. Of a task whose rows were not read to their end
    there is none, and its dropped rows are missing at the hop ``steps``.

    Attributes:
        staging: the folder of the run.
        step: number of the step in its pipeline.
        topics: of the pipeline's sources.
    """

    staging: Staging
    step: int
    topics: tuple[str, ...]

    def without(self, rows: DataFrame, is_dropped: Column, fate: Fate) -> DataFrame:
        """Returns ``rows`` without those for which ``is_dropped`` is true, which get ``fate``.

        Only the column :data:`FACTS` of the dropped rows goes to Python. Rows without that column,
        behind a step that does not let it through, are not counted.

        Args:
            rows: to drop some of.
            is_dropped: a condition; rows for which it is null stay.
            fate: that the ledger counts of them.
        """
        from pyspark.sql import functions as F  # noqa: N812

        if FACTS not in rows.columns:
            return rows.where(~F.coalesce(is_dropped, F.lit(False)))
        # Else Spark may evaluate it twice, or in another stage than the step's.
        is_kept = F.arrow_udf(self._counting(fate), "boolean").asNondeterministic()
        facts = F.when(is_dropped, F.col(FACTS))
        return rows.withColumn(_KEPT, is_kept(facts)).where(F.col(_KEPT)).drop(_KEPT)

    def put(self, lines: Sequence[LedgerLine]) -> None:
        """Leaves the sums of this task; called in it once, when it has seen its last row."""
        from pyspark import TaskContext

        task = TaskContext.get()
        batch_id = None if task is None else task.getLocalProperty(_BATCH_ID)
        if task is None or batch_id is None:
            raise RuntimeError("rows are counted in a batch of a pipeline, and not otherwise")
        if lines:
            name = f"{self.step}-{task.stageId()}-{task.partitionId()}"
            self.staging.put_lines(int(batch_id), name, lines)

    def _counting(self, fate: Fate) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
        import pyarrow as pa

        def count(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
            tally = RowTally(self.topics)
            with raising_remote_errors():
                for facts in batches:
                    tally.add(Hop.STEPS, fate, RowFacts.of(facts.drop_null()))
                    yield facts.is_null()
                self.put(tally.lines())

        # Spark takes the kind of a function from its annotations, and can't resolve texts with
        # `pa`.
        count.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
        return count
