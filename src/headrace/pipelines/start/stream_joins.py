"""Joins and watermarks of steps that Spark takes, and that lose or keep what they must not.

Spark asks for less than a right result needs (SPARK-58904, closed without a fix): of an outer join
it takes a watermark on one side alone, and of an inner one none at all. Rows are then given as
unmatched although their match follows, or stay in the state for ever. With a watermark delay of 0
every row is dropped whose time equals the newest one of the batch before (SPARK PR 56043).

============================================== =================================================
a step that                                    is
============================================== =================================================
joins two streams, and both have a watermark   taken
on the times by which the condition bounds
them: a range on both sides
    (``a BETWEEN b AND b + INTERVAL 1 HOUR``),
or their equality, also of windows
joins two streams in any other way, inner too  refused
joins a stream with a table                    taken: nothing is remembered
sets a watermark with a delay of 0             refused
============================================== =================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

from headrace.pipelines.start.plan_expressions import items
from headrace.pipelines.start.state_operators import has_state, streaming_nodes
from headrace.pipelines.transforms.transform import WATERMARK_DELAY
from headrace.spark.analyzed_plans import analyzed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Any time does: whether there is a bound does not depend on how far the watermark has come. It is
# beyond 32 bits, so that Py4J hands it over as the long that Spark wants.
_SOME_WATERMARK_MS = 10**12


def unsafe_operator(rows: DataFrame) -> str:
    """Returns what is wrong with a join or a watermark in the plan of streaming rows.

    The text is a sentence about the step, with the remedy; empty if nothing is wrong. Nothing runs.
    """
    plan = analyzed(rows)
    jvm: Any = rows.sparkSession._jvm  # noqa: SLF001  there is no public way
    return next(filter(None, (_problem(node, jvm) for node in streaming_nodes(plan))), "")


def _problem(node: Any, jvm: Any) -> str:
    if node.nodeName() == "EventTimeWatermark":
        watermark = jvm.org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark
        if watermark.getDelayMs(node.delay()) == 0:
            return (
                f"it sets a watermark on {node.eventTime().name()!r} with a delay of 0: Spark "
                "drops rows whose time equals the newest one of the batch before. Set a delay "
                "above zero"
            )
    elif node.nodeName() == "Join" and has_state(node) and not _is_bounded(node, jvm):
        return (
            f"it joins two streams ({node.joinType().sql()}, {_condition_text(node)}) without a "
            "watermark and a time limit on both sides: Spark would keep rows for ever, or give "
            "some as unmatched before their match comes. Declare the pipeline's source as a Join, "
            "or bound the event time of each side by that of the other: `a BETWEEN b AND b + "
            "INTERVAL 1 HOUR`"
        )
    return ""


def _condition_text(join: Any) -> str:
    condition = join.condition()
    return f"on {condition.get().sql()}" if condition.isDefined() else "without a condition"


def _is_bounded(join: Any, jvm: Any) -> bool:
    """Whether rows of both sides leave the state when the watermark of the other has passed them.

    Spark's own calculation, which it uses for one side: here for both, and only by columns with a
    watermark.
    """
    condition = join.condition()
    if not condition.isDefined():
        return False
    if any(_equals_times(conjunct) for conjunct in _conjuncts(condition.get())):
        return True
    helper = jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
    some_watermark = jvm.scala.Some(_SOME_WATERMARK_MS)
    left, right = (_times(side) for side in (join.left(), join.right()))
    return all(
        helper.getStateValueWatermark(side, limited_by, condition, some_watermark).isDefined()
        for side, limited_by in ((left, right), (right, left))
    )


def _times(plan: Any) -> Any:
    """The columns of a plan that have a watermark, as Spark's set of them."""
    untimed = (column for column in items(plan.output()) if not _has_watermark(column))
    return reduce(lambda kept, column: getattr(kept, "$minus")(column), untimed, plan.outputSet())


def _conjuncts(condition: Any) -> Iterator[Any]:
    if condition.nodeName() == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _equals_times(conjunct: Any) -> bool:
    return conjunct.nodeName() == "EqualTo" and all(
        side.nodeName() == "AttributeReference" and _has_watermark(side)
        for side in (conjunct.left(), conjunct.right())
    )


def _has_watermark(column: Any) -> bool:
    return bool(column.metadata().contains(WATERMARK_DELAY))
