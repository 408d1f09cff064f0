"""``deduplicate``: of rows that are alike by some columns, the first within a time stays."""

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

_OPERATOR = "dedupeWithinWatermark"


@dataclass(frozen=True)
class deduplicate(Transform):  # noqa: N801  a verb, as the steps of users are
    """Step: drops rows that repeat an earlier one.

    ========= ==================================================================================
    columns   as they come in
    keeps     the first row of each combination of ``by``, in the order in which Spark reads
    drops     later ones whose ``event_time`` is within ``within`` of the first, counted as
              ``duplicate_rows``; and rows older than the watermark, counted as
              ``dropped_by_watermark_rows``
    watermark ``within`` behind the newest event time, unless the rows have a watermark already:
              then that one, which several sources have (``Source.watermark``)
    state     the key of each row until the watermark has passed it: ``deduplicate_state_rows``
    a crash   repeats nothing: the state is in the checkpoint. A reset begins with an empty state
    ========= ==================================================================================

    Spark's ``dropDuplicatesWithinWatermark`` does the work.

    Attributes:
        by: the columns that two rows must have alike.
        within: how long a row is remembered, in event time.
        event_time: column of the event time.
    """

    by: Sequence[str]
    within: timedelta
    event_time: str = "event_time"

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            "deduplicate_state_rows",
            "rows",
            "keys that `deduplicate` remembers, over all tasks",
            "rising for ever: event time stands still; a shorter `within` needs less memory",
        ),
    )

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Sets the watermark where there is none, and drops repetitions."""
        timed = with_watermark(rows, self.event_time, self.within)
        return timed.dropDuplicatesWithinWatermark(list(self.by))

    def faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:
        """Yields a fault for a time that is not above zero, and for columns that are not there."""
        yield from duration(self, "within", timedelta(microseconds=1))
        if isinstance(self.by, str) or not self.by:
            yield Fault(f"deduplicate.by is {self.by!r}", 'by=["event_id"]')
        else:
            yield from missing_columns("deduplicate", (*self.by, self.event_time), columns)

    def figures(self, operator: Mapping[str, Any]) -> Mapping[str, int]:
        """Returns the number of keys in the state."""
        if operator["operatorName"] != _OPERATOR:
            return {}
        return {"deduplicate_state_rows": int(operator["numRowsTotal"])}
