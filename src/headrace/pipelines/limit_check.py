"""Whether the bad records of a batch stop its pipeline: looked at before any is written."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import DeadLetterLimitError
from headrace.model import TopicPartition
from headrace.pipelines.pipeline import Pipeline
from headrace.pipelines.source.bad_records import MAX_BYTES
from headrace.pipelines.source.report import BadRuns, RangeReport


class LimitCheck:
    """Holds the batches of one run against its pipeline's dead-letter limit, in their order."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline.name
        self._limit = pipeline.dead_letter_limit
        self._runs: dict[TopicPartition, BadRuns] = {}

    def check(self, reports: Sequence[RangeReport], derived: int) -> None:
        """Goes by what the tasks counted; they carry no more bad records than there is room for.

        Args:
            reports: of the batch, in order of topic, partition and offset.
            derived: rows of steps that are dead letters too.

        Raises:
            DeadLetterLimitError: too many are bad, or in a row, or they can't be carried.
        """
        limit = self._limit
        records = sum(report.records for report in reports)
        bad = sum(report.bad for report in reports) + derived
        if records >= limit.min_records and bad > limit.max_ratio * records:
            share = f"{bad} of {records} records of a batch are bad (max_ratio {limit.max_ratio})"
            raise self._error(share, reports)
        for report in reports:
            partition = report.range.partition
            longest = self._longest(report)
            if longest > limit.max_consecutive:
                row = f"{longest} bad records in a row in {partition}"
                raise self._error(f"{row} (max_consecutive {limit.max_consecutive})", [report])
            if report.omitted:
                size = f"{MAX_BYTES // 2**20} MiB in a range of one batch"
                many = f"the {report.bad} bad records of {partition} hold more than {size}"
                raise self._error(many, [report])

    def _longest(self, report: RangeReport) -> int:
        """The longest run of bad records in ``report``, and in what came before it."""
        partition = report.range.partition
        joined = self._runs.get(partition, BadRuns()).then(report.bad_runs)
        self._runs[partition] = BadRuns(joined.trailing, *[joined.trailing] * 3)
        return joined.longest

    def _error(self, what: str, reports: Sequence[RangeReport]) -> DeadLetterLimitError:
        return DeadLetterLimitError(self._pipeline, f"{what}; the first: {_first(reports)}")


def _first(reports: Sequence[RangeReport]) -> str:
    for report in reports:
        for letter in report.dead:
            return f"{letter.partition} offset {letter.offset}: {letter.reason}, {letter.detail}"
    return "(a derived row)"
