"""Whether the bad records of a batch stop its pipeline: checked before any is written."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import DeadLetterLimitError
from headrace.kafka.dead_letter_limiter import DeadLetterLimiter
from headrace.model import DeadLetter
from headrace.pipelines.pipeline import Pipeline
from headrace.pipelines.source.bad_records import MAX_BYTES
from headrace.pipelines.source.report import RangeReport
from headrace.sinks.api import RejectedValues


class LimitCheck:
    """Holds the batches of one run against its pipeline's dead-letter limit, in their order."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline.name
        self._limiter = DeadLetterLimiter(pipeline.name, pipeline.dead_letter_limit)

    def check(self, reports: Sequence[RangeReport], derived: Sequence[DeadLetter]) -> None:
        """Goes by what the tasks counted; they carry no more bad records than there is room for.

        Args:
            reports: of the batch, in order of topic, partition and offset.
            derived: rows that the sink can't take, which belong to no record.

        Raises:
            DeadLetterLimitError: if too many are bad, or in a row, or they can't be carried.
        """
        records = sum(report.records for report in reports)
        bad = sum(report.bad for report in reports) + len(derived)
        self._limiter.count(records, bad, _first(reports, derived))
        for report in reports:
            partition = report.range.partition
            self._limiter.count_run(partition, report.bad_runs, _first([report]))
            if report.omitted:
                size = f"{MAX_BYTES // 2**20} MiB in a range of one batch"
                reason = f"the {report.bad} bad records of {partition} hold more than {size}"
                raise DeadLetterLimitError(
                    self._pipeline, f"{reason}; for example: {_first([report])}"
                )

    def count_rejected(self, rows: Sequence[RejectedValues]) -> None:
        """Counts rows that the sink's commit has rejected.

        Raises:
            DeadLetterLimitError: if too many are bad.
        """
        self._limiter.count(0, len(rows), f"a row: {rows[0].reason}, {rows[0].detail}")


def _first(reports: Sequence[RangeReport], derived: Sequence[DeadLetter] = ()) -> str:
    for report in reports:
        for letter in report.dead:
            return f"{letter.partition} offset {letter.offset}: {letter.reason}, {letter.detail}"
    return next((f"a row: {letter.reason}, {letter.detail}" for letter in derived), "none")
