"""Whether a query keeps state in its checkpoint, as Spark's plan of it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark's logical operators that take each row by itself. What is not listed counts as one with
# state: to refuse a start that would have been safe is better than to lose a window.
_ROW_BY_ROW = frozenset(
    {
        "ArrowEvalPython",
        "BatchEvalPython",
        "EventTimeWatermark",
        "Filter",
        "Generate",
        "MapInArrow",
        "MapInPandas",
        "Project",
        "PythonMapInArrow",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "StreamingDataSourceV2Relation",
        "StreamingRelationV2",
        "SubqueryAlias",
        "Union",
    }
)


def keeps_state(rows: DataFrame) -> bool:
    """Whether Spark remembers anything of earlier batches to make ``rows``."""
    return _keeps_state(rows._jdf.queryExecution().analyzed())  # noqa: SLF001  no public way


def _keeps_state(plan: Any) -> bool:
    if not plan.isStreaming():
        return False
    inputs = plan.children()
    children = [inputs.apply(index) for index in range(inputs.size())]
    name = plan.nodeName()
    if name == "Join":
        # A join with a table that is no stream looks its rows up anew in each batch.
        if sum(child.isStreaming() for child in children) > 1:
            return True
    elif name not in _ROW_BY_ROW:
        return True
    return any(_keeps_state(child) for child in children)
