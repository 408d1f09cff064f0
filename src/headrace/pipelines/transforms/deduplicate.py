"""``deduplicate``: keeps the first of the rows that are equal in some columns, for some time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.ledger.sums import Fate
from headrace.metrics import Metric
from headrace.model import FieldType
from headrace.model.fault import Fault, duration
from headrace.pipelines.steps.column_names import quoted
from headrace.pipelines.transforms.transform import (
    EVENT_TIME,
    MAX_INTERVAL,
    WATERMARK_DELAY,
    Transform,
    missing_columns,
    missing_event_time,
    state_rows,
    with_watermark,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipelines.ledger.counting.step_ledger import StepLedger

_OPERATOR = "dedupeWithinWatermark"
_UNLIKE = "_headrace_unlike_others"


@dataclass(frozen=True)
class deduplicate(Transform):  # noqa: N801  a verb, as the steps of users are
    """Step: drops duplicates of earlier rows.

    ========= ==================================================================================
    columns   as they come in
    keeps     the first row of each combination of ``by``, in the order in which Spark reads; and
              every row with a null in one of ``by``, or without an event time: nothing can be said
              of what it equals. These are counted as ``deduplicate_null_key_rows``
    drops     duplicates, counted as ``duplicate_rows``
    rejects   rows older than the watermark, duplicates or not: dead letters ``behind-watermark``,
              unless the pipeline declares ``LateData.DROP``
    remembers the first row until the watermark has passed its event time by ``within``. So a
              duplicate whose event time is at most ``within`` after that of the first is never
              kept. A later one is dropped too, unless rows that are newer than the first by
              ``within`` and the watermark's delay came at least two batches before it
    watermark ``within`` behind the newest event time, unless the rows have a watermark already:
              then that one. ``Source.watermark`` sets it: a short one ends the memory soon after
              ``within``, and takes no rows that are later than it
    ledger    duplicates have the fate *deduplicated*, rows behind the watermark *behind watermark*
    state     the key of each row until the watermark has passed it: ``deduplicate_state_rows``
    a crash   repeats nothing: the state is in the checkpoint. A reset begins with an empty state
    ========= ==================================================================================

    Spark's ``dropDuplicatesWithinWatermark`` does the work.

    Attributes:
        by: the columns in which a duplicate equals the first row.
        within: how long after a row, in event time, duplicates of it are dropped at least.
        event_time: column of the event time; None: the one that the first topic of the pipeline
            declares, or ``event_time`` if it declares none.
        ledger: set by headrace where the pipeline runs.
    """

    by: Sequence[str]
    within: timedelta
    event_time: str | None = None
    ledger: StepLedger | None = field(default=None, repr=False, compare=False)

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            "deduplicate_state_rows",
            "rows",
            "keys that `deduplicate` remembers, over all tasks",
            "rising without end: event time does not advance; a shorter `within` needs less memory",
        ),
        Metric(
            "deduplicate_null_key_rows",
            "rows",
            "rows that `deduplicate` passed on without a look at earlier ones, because a column of"
            " `by` or the event time is null",
            "not 0: duplicates may be among them; choose columns for `by` that are never null",
            is_counter=True,
        ),
    )

    keeps_lineage: ClassVar[bool] = True

    @property
    def watermark_delay(self) -> timedelta:
        """The delay of the watermark that it sets on rows without one."""
        return self.within

    def with_ledger(self, ledger: StepLedger) -> deduplicate:
        """Returns the step with the counter of the rows that it drops."""
        return replace(self, ledger=ledger)

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Sets the watermark where there is none, drops duplicates, and counts them."""
        if self.ledger is None:
            return self._unique(rows)
        event_time = self.event_time or EVENT_TIME
        return self.ledger.around(rows, self._unique, Fate.DEDUPLICATED, event_time)

    def _unique(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        event_time = self.event_time or EVENT_TIME
        timed = with_watermark(rows, event_time, self.within)
        # Spark remembers a key for the delay in this metadata, and takes the watermark itself from
        # the plan: without it, the delay of a source's watermark would stand in for `within`.
        known = timed.schema[event_time].metadata
        delay_ms = self.within // timedelta(milliseconds=1)
        timed = timed.withMetadata(event_time, {**known, WATERMARK_DELAY: delay_ms})
        # Spark takes null for equal to null. A value of its own makes such a row unlike all others.
        # Spark seeds uuid() for each batch, so a task that runs again sends rows to the same tasks.
        is_null = reduce(or_, (F.col(quoted(name)).isNull() for name in (*self.by, event_time)))
        keyed = timed.withColumn(_UNLIKE, F.when(is_null, F.expr("uuid()")))
        unique = keyed.dropDuplicatesWithinWatermark([*self.by, _UNLIKE])
        counted = self.count(unique, deduplicate_null_key_rows=F.col(_UNLIKE).isNotNull())
        return counted.drop(_UNLIKE)

    def state(self) -> Mapping[str, str | list[str]]:
        """Returns the columns of the keys, and that of the watermark; ``within`` may change."""
        return {"by": list(self.by), "event_time": self.event_time or EVENT_TIME}

    def faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:
        """Yields a fault for a time that is too short or too long, and for missing columns."""
        yield from duration(self, "within", timedelta(milliseconds=1), MAX_INTERVAL)
        if isinstance(self.by, str) or not self.by:
            yield Fault(f"deduplicate.by is {self.by!r}", 'by=["event_id"]')
        else:
            yield from missing_columns("deduplicate", self.by, columns)
            yield from missing_event_time("deduplicate", self.event_time or EVENT_TIME, columns)

    def columns_after(self, columns: Mapping[str, FieldType]) -> Mapping[str, FieldType]:
        """Returns the columns that come in."""
        return columns

    def for_topic(self, event_time: str | None) -> deduplicate:
        """Returns the step with the event time of the topic, unless it names one."""
        return replace(self, event_time=self.event_time or event_time)

    def figures(self, operator: Mapping[str, Any]) -> Mapping[str, int]:
        """Returns the number of keys in the state."""
        return state_rows(operator, _OPERATOR, "deduplicate_state_rows")
