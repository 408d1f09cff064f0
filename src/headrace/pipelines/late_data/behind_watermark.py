"""Takes rows out of a query before an operator with state drops them behind Spark's watermark.

Such an operator (a window, a de-duplication, a join of streams) drops rows by itself, and says only
how many they were. So a filter is put into the plan below each one that has no other one below it:
what comes out of another one is never behind. The condition is Spark's: the event time, or the end
of the window, is not after the watermark with which the batch before ended. What the filter takes
out is a dead letter with the row as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.ledger.sums import Fate, Hop
from headrace.model import DeadLetter, DeadLetterLimit
from headrace.model.name import is_own_column
from headrace.pipelines.batch.manifest import derived_row_letter
from headrace.pipelines.late_data.batch_watermark import rows_behind, watermark_us
from headrace.pipelines.late_data.rule import BEHIND_WATERMARK, time_text
from headrace.pipelines.ledger.counting.row_lineage import LINEAGE, RowLineage, RowTally
from headrace.pipelines.ledger.counting.step_ledger import kept_rows, put_step
from headrace.pipelines.source.reading.bad_records import BadRecords
from headrace.pipelines.source.staging import Staging, StepReport
from headrace.pipelines.start.plan_expressions import items
from headrace.pipelines.start.state_operators import is_known_to_have_state, streaming_nodes
from headrace.pipelines.transforms.transform import WATERMARK_DELAY
from headrace.sinks.api import RejectedRow
from headrace.spark.analyzed_plans import analyzed, frame_of, with_children
from headrace.spark.remote_errors import raising_remote_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from headrace.pipelines.ledger.counting.step_ledger import Keep


def take_out_behind(rows: DataFrame, staging: Staging, topics: Sequence[str]) -> DataFrame:
    """Returns ``rows`` of a query whose operators with state get none behind the watermark.

    Args:
        rows: as all steps have made them.
        staging: the folder of the run, where tasks leave what they take out.
        topics: names of the pipeline's sources; the first one is named by dead letters.
    """
    plan = analyzed(rows)
    if not any(is_known_to_have_state(node) for node in streaming_nodes(plan)):
        return rows
    return frame_of(_Guard(rows, staging, tuple(topics)).guarded(plan), rows)


def holds_event_times(rows: DataFrame, event_time: str) -> bool:
    """Whether operators hold the event time as sources give it against the watermark.

    They are the first ones with state. Then what is behind it is known where a record is read.

    Args:
        rows: as all steps have made them.
        event_time: column of it in every source.
    """
    nodes = list(streaming_nodes(analyzed(rows)))
    # A column that gets other metadata, as by `deduplicate`, has an id of its own.
    copied = {
        column.exprId().id(): column.child().exprId().id()
        for node in nodes
        if node.nodeName() == "Project"
        for column in items(node.projectList())
        if column.nodeName() == "Alias" and column.child().nodeName() == "AttributeReference"
    }
    read = {
        column.exprId().id()
        for node in nodes
        if node.children().isEmpty()
        for column in items(node.output())
        if column.name() == event_time
    }
    held = [
        items(child.output())[time].exprId().id()
        for node in nodes
        if _is_first_with_state(node)
        for child in items(node.children())
        if (time := _time_column(node, child)) is not None
    ]
    return bool(held) and all(_origin(column, copied) in read for column in held)


def _origin(column: int, copied: Mapping[int, int]) -> int:
    while column in copied:
        column = copied[column]
    return column


class _Guard:
    """Puts filters below the operators with state."""

    def __init__(self, rows: DataFrame, staging: Staging, topics: tuple[str, ...]) -> None:
        self._rows = rows
        self._staging = staging
        self._topics = topics
        self._filters = 0

    def guarded(self, node: Any) -> Any:
        """Returns an operator and what is below it, with the filters."""
        below = [self.guarded(child) for child in items(node.children())]
        if _is_first_with_state(node):
            below = [self._filtered(node, child) for child in below]
        return with_children(node, below, self._rows) if below else node

    def _filtered(self, node: Any, child: Any) -> Any:
        time = _time_column(node, child)
        if time is None:
            return child
        self._filters += 1
        behind = _BehindFilter(self._staging, self._topics, f"behind{self._filters}", time)
        return analyzed(behind.applied(frame_of(child, self._rows)))


def _is_first_with_state(node: Any) -> bool:
    if not node.isStreaming() or not is_known_to_have_state(node):
        return False
    below = (inner for child in items(node.children()) for inner in streaming_nodes(child))
    return not any(map(is_known_to_have_state, below))


def _time_column(node: Any, child: Any) -> int | None:
    """Returns the number of the column of its input that an operator holds against the watermark.

    It has the watermark in its metadata. None: the operator drops no rows by it.
    """
    output = items(child.output())
    match node.nodeName():
        case "Aggregate":
            columns = items(node.groupingExpressions())
        case "GlobalLimit":
            return None
        case "FlatMapGroupsInPandasWithState" if node.timeout().toString() != "EventTimeTimeout":
            return None
        case "TransformWithStateInPySpark" if node.timeMode().toString() != "EventTime":
            return None
        case _:
            columns = output
    ids = [column.exprId().id() for column in output]
    return next(
        (
            ids.index(column.exprId().id())
            for column in columns
            if column.nodeName() == "AttributeReference"
            and column.metadata().contains(WATERMARK_DELAY)
        ),
        None,
    )


@dataclass(frozen=True)
class _BehindFilter:
    """The filter below one operator; picklable, as it travels to the tasks.

    Attributes:
        staging: the folder of the run.
        topics: of the pipeline's sources.
        name: of the filter, among those of the query.
        time: number of the column with the event time, or the window.
    """

    staging: Staging
    topics: tuple[str, ...]
    name: str
    time: int

    def applied(self, rows: DataFrame) -> DataFrame:
        """Returns ``rows`` without those that are behind, with their columns as they are."""
        return kept_rows(rows, _all_columns(rows), self._keep())

    def _keep(self) -> Keep:
        def keep(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
            import pyarrow as pa

            taken, tally = BadRecords(DeadLetterLimit()), RowTally(self.topics)
            with raising_remote_errors():
                for batch in batches:
                    is_behind = rows_behind(_ends(batch.field(self.time)), watermark_us())
                    if is_behind.any():
                        rows = batch.filter(pa.array(is_behind))
                        taken.take(self._letters(rows), longest_run=0)
                        number = rows.type.get_field_index(LINEAGE)
                        if number >= 0:
                            tally.add(Hop.STEPS, Fate.BEHIND, RowLineage.of(rows.field(number)))
                    yield pa.array(~is_behind)
                report = StepReport(tally.lines(), tuple(taken.kept), taken.omitted)
                if report != StepReport():
                    put_step(self.staging, self.name, report)

        return keep

    def _letters(self, rows: pa.StructArray) -> Iterator[DeadLetter]:
        import pyarrow as pa

        field, passed = rows.type.field(self.time), time_text(watermark_us())
        verb = "ends at" if pa.types.is_struct(field.type) else "is"
        times = _ends(rows.field(self.time)).cast(pa.int64()).to_pylist()
        names = [field.name for field in rows.type]
        table = pa.Table.from_arrays(rows.flatten(), names)
        table = table.drop_columns([*filter(is_own_column, names)])
        for index, time in enumerate(times):
            detail = (
                f"column {field.name!r} {verb} {time_text(time)}; the watermark is {passed}, and a "
                "step with state takes what is after it"
            )
            rejected = RejectedRow(index, BEHIND_WATERMARK, detail)
            yield derived_row_letter(table, rejected, self.topics[0])


def _ends(times: pa.Array) -> pa.Array:
    """Returns event times as they are, and the ends of windows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.struct_field(times, "end") if pa.types.is_struct(times.type) else times


def _all_columns(rows: DataFrame) -> Column:
    """Returns a struct of all columns in their order, with names that differ."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

    struct, fields = F.struct("*"), rows.schema.fields
    if len({field.name for field in fields}) == len(fields):
        return struct
    # A join has columns of both sides, and Arrow takes no two of a name.
    renamed = [T.StructField(f"{f.name}_{n}", f.dataType) for n, f in enumerate(fields)]
    return struct.cast(T.StructType(renamed))
