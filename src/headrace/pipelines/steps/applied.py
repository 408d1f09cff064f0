"""The user's steps: applied, and named by function, type and line where they fail."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import StepError
from headrace.model.name import OWN_PREFIX, is_own_column
from headrace.pipelines.ledger.counting.row_lineage import LINEAGE
from headrace.pipelines.start.state_operators import SEVERAL_OPERATORS
from headrace.pipelines.start.stream_joins import unsafe_operator
from headrace.pipelines.steps.carried_lineage import carried_past
from headrace.pipelines.steps.step_columns import untaken_columns
from headrace.pipelines.transforms.transform import Transform
from headrace.spark.analyzed_plans import analyzed
from headrace.spark.tracebacks import TracebackLine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Step = Callable[..., "DataFrame"]


class SteppedRows(NamedTuple):
    """Rows after steps.

    Attributes:
        rows: that come out of the last step.
        uncounted: why the ledger can't count them, as a sentence; empty: it can.
    """

    rows: DataFrame
    uncounted: str


def apply_steps(steps: Sequence[Step], frames: Sequence[DataFrame]) -> SteppedRows:
    """The rows that come out of the steps; the first takes all ``frames``, the others one.

    Frames with the ledger's column give rows with it, as far as steps pass it on.

    Raises:
        StepError: a step raised, gave something else than a DataFrame, set a second watermark,
            joins streams in a way that gives wrong results in Spark
            (:mod:`headrace.pipelines.start.stream_joins`), or makes a column that no table takes
            and that no later step removes.
    """
    rows, uncounted = list(frames), ""
    untaken: dict[str, str] = {}
    makers: dict[str, Step] = {}
    for step in steps:
        is_counted = LINEAGE in rows[0].columns
        rows = [_stepped(step, rows)]
        _check_watermark(step, rows[0])
        if problem := unsafe_operator(rows[0]):
            raise StepError(_name(step), problem, _defined_at(step))
        if is_counted and LINEAGE not in rows[0].columns:
            uncounted = f"{_name(step)} does not say which events its rows come from"
        untaken = untaken_columns(rows[0].schema)
        makers = {column: makers.get(column, step) for column in untaken}
    for column, step in makers.items():
        raise StepError(_name(step), untaken[column], _defined_at(step))
    return SteppedRows(rows[0], uncounted)


def _stepped(step: Step, frames: Sequence[DataFrame]) -> DataFrame:
    """Applies a step; only those that count for the ledger see its column."""
    first, *others = frames
    if LINEAGE not in first.columns or (isinstance(step, Transform) and step.keeps_lineage):
        return _applied(step, frames)
    if others:
        return _applied(step, [frame.drop(LINEAGE) for frame in frames])
    return carried_past(lambda rows: _applied(step, [rows]), first)


def _applied(step: Step, frames: Sequence[DataFrame]) -> DataFrame:
    from pyspark.sql import DataFrame

    try:
        rows = step(*frames)
    except Exception as error:
        message = next(filter(None, str(error).splitlines()), "")  # Spark's parser leaves one empty
        problem = f"{type(error).__name__}: {message}" if message else type(error).__name__
        raise StepError(_name(step), problem, _raised_at(error) or _defined_at(step)) from error
    if not isinstance(rows, DataFrame):
        problem = f"it gave {type(rows).__name__}, and must return a DataFrame"
        raise StepError(_name(step), problem, _defined_at(step))
    if own := [*filter(is_own_column, set(rows.columns).difference(frames[0].columns))]:
        problem = (
            f"it makes column {min(own)!r}: names that begin with {OWN_PREFIX!r} are headrace's "
            "own, whose steps would replace it; rename it"
        )
        raise StepError(_name(step), problem, _defined_at(step))
    return rows


def _check_watermark(step: Step, rows: DataFrame) -> None:
    """Spark takes a watermark on rows that have one, and fails in the second batch."""
    plan = analyzed(rows)
    is_old_rule = rows.sparkSession.conf.get(SEVERAL_OPERATORS, "true") == "false"
    if is_old_rule or not _has_second_watermark(plan, above=False):
        return
    problem = (
        "it sets a watermark on rows that have one. headrace sets one on each of several sources: "
        "declare its delay with Source(watermark=...), and leave withWatermark out"
    )
    raise StepError(_name(step), problem, _defined_at(step))


def _has_second_watermark(plan: Any, *, above: bool) -> bool:
    """Whether a node for a watermark lies below another one."""
    is_watermark = plan.nodeName() == "EventTimeWatermark"
    if is_watermark and above:
        return True
    children = plan.children()
    return any(
        _has_second_watermark(children.apply(index), above=above or is_watermark)
        for index in range(children.size())
    )


def _name(step: Step) -> str:
    return str(getattr(step, "__name__", type(step).__name__))


def _raised_at(error: Exception) -> str:
    """The project's last line on the way to where it was raised."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if TracebackLine(frame.filename, frame.lineno or 0, frame.name).is_users:
            return f"{frame.filename}:{frame.lineno}"
    return ""


def _defined_at(step: Step) -> str:
    code = getattr(step, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
