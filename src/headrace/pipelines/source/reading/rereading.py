"""Reads ranges for their reports alone, in a Spark job beside the query.

A step may stop before it has read its input: `limit`, a condition that Spark knows to be false, a
join with an empty table. Rows that it does not want are its own business; the bad records among
them are dead letters all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.model import OffsetRange
from headrace.pipelines.source.offsets import SourceOffset
from headrace.pipelines.source.reading.reader import RangeReader, ReadRange
from headrace.pipelines.source.report import RangeReport
from headrace.pipelines.source.spec import SourceSpec
from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.spark.remote_errors import raising_remote_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Rereading:
    """Gets the reports of ranges that no task has read to their ends."""

    def __init__(self, spark: SparkSession, specs: Sequence[SourceSpec]) -> None:
        self._spark = spark
        self._specs = {spec.topic: spec for spec in specs}

    def reports(
        self, ranges: Sequence[OffsetRange], ends: Mapping[str, SourceOffset]
    ) -> list[RangeReport]:
        """Reads ``ranges``, each in a task; ``ends``, by topic, are those of the batch."""
        specs = self._specs

        def report(range_: OffsetRange) -> RangeReport:
            topic = range_.partition.topic
            with raising_remote_errors():
                return read_report(specs[topic], range_, ends[topic], len(ranges))

        context = self._spark.sparkContext
        return list(context.parallelize(ranges, len(ranges)).map(report).collect())


def read_report(
    spec: SourceSpec, range_: OffsetRange, end: SourceOffset, range_count: int = 1
) -> RangeReport:
    """Reads and judges a range of the batch up to ``end``, and drops its rows.

    Late events among them go to the side table all the same.
    """
    read = ReadRange(
        range_,
        end.planned_ms,
        topic_id=end.topic_id,
        may_hold_replays=True,
        event_us=end.event_us.get(range_.partition.partition),
        range_count=range_count,
    )
    reader = RangeReader(spec, range_, read)
    with cleaning_up_after_failure(reader.abort):
        for _ in reader.tables():
            pass
        return reader.report()
