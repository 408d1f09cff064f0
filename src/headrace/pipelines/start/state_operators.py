"""Whether a query keeps state in its checkpoint, as Spark's plan of it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.spark.analyzed_plans import analyzed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SEVERAL_OPERATORS = "spark.sql.streaming.statefulOperator.allowMultiple"
"""Spark's setting by which a query may have several operators with state; "true" by default."""

# Spark's logical operators that take each row by itself. What is not listed counts as one with
# state: to refuse a start that would have been safe is better than to lose a window.
_ROW_BY_ROW = frozenset(
    {
        "ArrowEvalPython",
        "BatchEvalPython",
        "CollectMetrics",
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


# Those that are known to keep state: an operator that is not, such as a hint, may come and go.
_STATEFUL = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsInPandasWithState",
        "GlobalLimit",
        "Join",
        "TransformWithStateInPySpark",
    }
)


def keeps_state(rows: DataFrame) -> bool:
    """Whether Spark remembers anything of earlier batches to make ``rows``."""
    plan = analyzed(rows)
    return any(has_state(node) for node in streaming_nodes(plan))


def has_state(node: Any) -> bool:
    """Whether a streaming operator of a plan, its inputs aside, keeps state."""
    name = node.nodeName()
    if name != "Join":
        return name not in _ROW_BY_ROW
    # A join with a table that is no stream looks its rows up again in each batch.
    return bool(node.left().isStreaming() and node.right().isStreaming())


def is_known_to_have_state(node: Any) -> bool:
    """Whether a streaming operator is one of those that Spark runs with state."""
    return node.nodeName() in _STATEFUL and has_state(node)


def streaming_nodes(plan: Any) -> Iterator[Any]:
    """Yields the operators of a plan that have streaming rows, from the last one to the sources."""
    if plan.isStreaming():
        yield plan
        inputs = plan.children()
        for index in range(inputs.size()):
            yield from streaming_nodes(inputs.apply(index))
