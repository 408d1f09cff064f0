"""Carries the ledger's column past steps that must not see it.

A step gets the rows without the column. If Spark's plan of what it returns is a chain of operators
that make at most one row of each row, the column is put back into each of them: projections,
filters, watermarks, counts and repartitions. After anything else, such as an aggregation, a join,
``explode`` or a function over batches of rows, it is not known from which event a row came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.pipelines.ledger.counting.row_lineage import LINEAGE
from headrace.pipelines.start.plan_expressions import items
from headrace.spark.analyzed_plans import analyzed, frame_of, with_children

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROW_BY_ROW = frozenset(
    {
        "CollectMetrics",
        "EventTimeWatermark",
        "Filter",
        "Project",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "SubqueryAlias",
    }
)
_CATALYST = "org.apache.spark.sql.catalyst.plans.logical"


def carried_past(step: Callable[[DataFrame], DataFrame], rows: DataFrame) -> DataFrame:
    """Returns what a step makes of ``rows``, with the column where that can be done.

    Args:
        step: returns a DataFrame.
        rows: with the column :data:`LINEAGE`.
    """
    hidden = rows.drop(LINEAGE)
    result = step(hidden)
    plan = _Carrier(rows, hidden).carried(analyzed(result))
    return result if plan is None else frame_of(plan, rows)


class _Carrier:
    """Puts the column into the operators between the rows of a step and its result."""

    def __init__(self, rows: DataFrame, hidden: DataFrame) -> None:
        self._jvm: Any = rows.sparkSession.sparkContext._jvm  # noqa: SLF001  there is no public way
        self._frame = rows
        self._rows, self._hidden = analyzed(rows), analyzed(hidden)
        [self._lineage] = [item for item in items(self._rows.output()) if item.name() == LINEAGE]

    def carried(self, plan: Any) -> Any | None:
        """Returns a plan with the column; None: its rows are not those that went in."""
        if plan.equals(self._hidden):
            return self._rows
        if plan.nodeName() not in _ROW_BY_ROW:
            return None
        below = self.carried(plan.children().head())
        if below is None:
            return None
        if plan.nodeName() == "Project":
            project = getattr(self._jvm, f"{_CATALYST}.Project")
            return project(plan.projectList().appended(self._lineage), below)
        return with_children(plan, [below], self._frame)
