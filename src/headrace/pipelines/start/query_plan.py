"""What is recorded of a query, as Spark's analyzed plan says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.pipelines.source.datasource import source_name
from headrace.pipelines.start.plan_expressions import PlanExpressions, items
from headrace.pipelines.start.query_record import Description, QueryRecord, described_transforms
from headrace.pipelines.start.state_operators import is_known_to_have_state, streaming_nodes
from headrace.spark.analyzed_plans import analyzed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipelines.declaration import Pipeline

_SOURCE = "StreamingRelationV2"


def query_record(pipeline: Pipeline, rows: DataFrame) -> QueryRecord:
    """Returns what is recorded of a query that makes ``rows``."""
    plan = analyzed(rows)
    names = [source.topic.name for source in pipeline.sources]
    reader = _PlanReader(plan, {source_name(pipeline.name, name): name for name in names})
    return QueryRecord(
        spark=rows.sparkSession.version,
        sources=reader.sources(plan),
        transforms=described_transforms(pipeline),
        operators=[
            reader.operator(node) for node in streaming_nodes(plan) if is_known_to_have_state(node)
        ],
    )


class _PlanReader:
    """Describes the operators of an analyzed plan."""

    def __init__(self, plan: Any, topics: Mapping[str, str]) -> None:
        self._expressions = PlanExpressions(plan)
        self._topics = topics

    def sources(self, plan: Any) -> list[str]:
        """Returns topics in the order in which Spark numbers its sources: from left to right."""
        nodes = (node for node in streaming_nodes(plan) if node.nodeName() == _SOURCE)
        return list(dict.fromkeys(self._topics[node.sourceName()] for node in nodes))

    def operator(self, node: Any) -> Description:
        """Describes an operator by what its state depends on; other changes of it are harmless.

        The event time is part of it: a watermark continues where it was, also on another column.
        """
        times = (n for n in streaming_nodes(node) if n.nodeName() == "EventTimeWatermark")
        return {
            "name": node.nodeName(),
            **self._state(node),
            "event_time": sorted({self._expressions.text(time.eventTime()) for time in times}),
        }

    def _state(self, node: Any) -> Description:
        match node.nodeName():
            case "Aggregate":
                results = items(node.aggregateExpressions())
                values = (
                    text for result in results for text in self._expressions.aggregates(result)
                )
                return {
                    "by": self._texts(node.groupingExpressions()),
                    "values": list(dict.fromkeys(values)),
                }
            case "Deduplicate" | "DeduplicateWithinWatermark":
                return {"by": self._texts(node.keys())}
            case "Join":
                condition = node.condition()
                return {
                    "type": node.joinType().toString(),
                    "on": self._expressions.text(condition.get()) if condition.isDefined() else "",
                    "inputs": [self.sources(node.left()), self.sources(node.right())],
                }
            case "FlatMapGroupsInPandasWithState":
                return {"by": self._texts(node.groupingAttributes())}
            case "TransformWithStateInPySpark":
                # The first columns of its input are the keys, put in front of all others.
                keys = node.child().output().take(node.groupingAttributesLen())
                return {"by": self._texts(keys)}
        return {}

    def _texts(self, expressions: Any) -> list[str]:
        return [self._expressions.text(expression) for expression in items(expressions)]
