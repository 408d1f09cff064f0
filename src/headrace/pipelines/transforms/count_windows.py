"""``count_windows``: how many rows there are in each window of event time, by some columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.metrics import Metric
from headrace.model import FieldType
from headrace.model.fault import Fault, duration, is_a
from headrace.pipelines.steps.column_names import quoted
from headrace.pipelines.transforms.transform import (
    EVENT_TIME,
    MAX_INTERVAL,
    Transform,
    interval,
    missing_columns,
    missing_event_time,
    state_rows,
    with_watermark,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OPERATOR = "stateStoreSave"
_ADDED = frozenset({"window", "window_start", "count"})


@dataclass(frozen=True)
class count_windows(Transform):  # noqa: N801  a verb, as the steps of users are
    """Step: counts rows by window of event time.

    ========= ==================================================================================
    columns   ``window_start`` timestamp, those of ``by``, ``count`` bigint
    gives     one row for each window and combination of ``by`` that has rows, once: in the batch
              after the one whose watermark has passed the window's end
    drops     rows without an event time, counted as ``count_windows_null_time_rows``
    rejects   rows whose window was given already, or could have been: dead letters
              ``behind-watermark``, unless the pipeline declares ``LateData.DROP``
    watermark ``within`` behind the newest event time, unless the rows have a watermark already:
              then that one, which several sources have (``Source.watermark``)
    state     a count for each open window and combination: ``count_windows_state_rows``, with the
              groups of other aggregates of the pipeline, which Spark's reports do not distinguish
    a crash   repeats nothing: the state is in the checkpoint. A reset begins with an empty state,
              so a window that was open is given with a part of its rows
    ========= ==================================================================================

    Spark's ``window`` does the work; windows are aligned to 1970 in UTC.

    Attributes:
        every: length of the windows.
        by: columns that have counts of their own.
        within: how long a window waits for rows after its end, in event time; above zero, since
            Spark would drop rows whose time equals the newest one of the batch before.
        event_time: column of the event time; None: the one that the first topic of the pipeline
            declares, or ``event_time`` if it declares none.
    """

    every: timedelta
    by: Sequence[str] = ()
    within: timedelta = timedelta(hours=1)
    event_time: str | None = None

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            "count_windows_state_rows",
            "rows",
            "counts of open windows that `count_windows` keeps, over all tasks; groups that other"
            " aggregates of the pipeline keep are counted with them",
            "rising without end: event time does not advance; fewer columns in `by`, or a shorter"
            " `within`, need less memory",
        ),
        Metric(
            "count_windows_null_time_rows",
            "rows",
            "rows that `count_windows` dropped because they have no event time, so no window",
            "not 0: a step makes the event time null; `filter_rows` before it can name the reason",
            is_counter=True,
        ),
    )

    @property
    def watermark_delay(self) -> timedelta:
        """The delay of the watermark that it sets on rows without one."""
        return self.within

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Sets the watermark where there is none, and counts."""
        from pyspark.sql import functions as F  # noqa: N812

        event_time = self.event_time or EVENT_TIME
        timed = self.count(
            with_watermark(rows, event_time, self.within),
            count_windows_null_time_rows=F.col(quoted(event_time)).isNull(),
        )
        window = F.window(quoted(event_time), interval(self.every))
        counts = timed.groupBy(window, *map(quoted, self.by)).count()
        start = F.col("window.start").alias("window_start")
        return counts.select(start, *map(quoted, self.by), "count")

    def state(self) -> Mapping[str, str | list[str]]:
        """Returns what makes the windows and their groups; ``within`` may change."""
        return {
            "every": str(self.every),
            "by": list(self.by),
            "event_time": self.event_time or EVENT_TIME,
        }

    def faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:
        """Yields a fault for times that are too short or too long, and for missing columns."""
        yield from duration(self, "every", timedelta(milliseconds=1), MAX_INTERVAL)
        yield from duration(self, "within", timedelta(milliseconds=1), MAX_INTERVAL)
        if isinstance(self.by, str):
            yield Fault(f"count_windows.by is {self.by!r}", 'by=["country"]')
        else:
            yield from missing_columns("count_windows", self.by, columns)
            for name in self.by:
                if is_a(name, str) and name.lower() in _ADDED:
                    message = f"count_windows.by names {name!r}, a column that it makes itself"
                    yield Fault(message, "give the column another name in a step before it")
            yield from missing_event_time("count_windows", self.event_time or EVENT_TIME, columns)

    def columns_after(self, columns: Mapping[str, FieldType]) -> Mapping[str, FieldType]:
        """Returns the columns of a window's count."""
        groups = {name: columns[name] for name in self.by}
        return {"window_start": FieldType.TIMESTAMP, **groups, "count": FieldType.LONG}

    def for_topic(self, event_time: str | None) -> count_windows:
        """Returns the step with the event time of the topic, unless it names one."""
        return replace(self, event_time=self.event_time or event_time)

    def figures(self, operator: Mapping[str, Any]) -> Mapping[str, int]:
        """Returns the number of counts in the state."""
        return state_rows(operator, _OPERATOR, "count_windows_state_rows")
