"""``count_windows``: how many rows there are in each window of event time, by some columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.metrics import Metric
from headrace.model import FieldType
from headrace.model.fault import Fault, duration
from headrace.pipelines.transforms.transform import Transform, missing_columns, with_watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OPERATOR = "stateStoreSave"


@dataclass(frozen=True)
class count_windows(Transform):  # noqa: N801  a verb, as the steps of users are
    """Step: counts rows by window of event time.

    ========= ==================================================================================
    columns   ``window_start`` timestamp, those of ``by``, ``count`` bigint
    gives     one row for each window and combination of ``by`` that has rows, once: in the batch
              after the one whose watermark has passed the window's end
    drops     rows whose window was given already, counted as ``dropped_by_watermark_rows``, those
              of one group in one task as one; and rows without an event time
    watermark ``within`` behind the newest event time, unless the rows have a watermark already:
              then that one, which several sources have (``Source.watermark``)
    state     a count for each open window and combination: ``count_windows_state_rows``
    a crash   repeats nothing: the state is in the checkpoint. A reset begins with an empty state,
              so a window that was open is given with a part of its rows
    ========= ==================================================================================

    Spark's ``window`` does the work; windows are aligned to 1970 in UTC.

    Attributes:
        every: length of the windows.
        by: columns that have counts of their own.
        within: how long a window waits for rows after its end, in event time.
        event_time: column of the event time.
    """

    every: timedelta
    by: Sequence[str] = ()
    within: timedelta = timedelta(hours=1)
    event_time: str = "event_time"

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            "count_windows_state_rows",
            "rows",
            "counts of open windows that `count_windows` keeps, over all tasks",
            "rising for ever: event time stands still; fewer columns in `by`, or a shorter"
            " `within`, need less memory",
        ),
    )

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Sets the watermark where there is none, and counts."""
        from pyspark.sql import functions as F  # noqa: N812

        timed = with_watermark(rows, self.event_time, self.within)
        length = f"{int(self.every.total_seconds() * 1000)} milliseconds"
        counts = timed.groupBy(F.window(self.event_time, length), *self.by).count()
        return counts.select(F.col("window.start").alias("window_start"), *self.by, "count")

    def faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:
        """Yields a fault for times that are too short, and for columns that are not there."""
        yield from duration(self, "every", timedelta(milliseconds=1))
        yield from duration(self, "within", timedelta(0))
        if isinstance(self.by, str):
            yield Fault(f"count_windows.by is {self.by!r}", 'by=["country"]')
        else:
            yield from missing_columns("count_windows", (*self.by, self.event_time), columns)

    def figures(self, operator: Mapping[str, Any]) -> Mapping[str, int]:
        """Returns the number of counts in the state."""
        if operator["operatorName"] != _OPERATOR:
            return {}
        return {"count_windows_state_rows": int(operator["numRowsTotal"])}
