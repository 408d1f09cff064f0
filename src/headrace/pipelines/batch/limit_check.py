"""Whether the bad records of a batch stop its pipeline: checked before any is written."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import DeadLetterLimitError
from headrace.kafka.dead_letters.limiter import DeadLetterLimiter
from headrace.model import DeadLetter
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.source.reading.bad_records import MAX_BATCH_BYTES, MAX_BYTES
from headrace.pipelines.source.report import RangeReport
from headrace.pipelines.source.staging import StepReport
from headrace.sinks.api import RejectedValues

_LESS_BEHIND = (
    "Declare `late_data=LateData.DROP` if you do not need these rows, or a longer `within`, or "
    "`Source(watermark=...)`, so that fewer come behind."
)


class LimitCheck:
    """Holds the batches of one run against its pipeline's dead-letter limit, in their order."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline.name
        self._limiter = DeadLetterLimiter(pipeline.name, pipeline.dead_letter_limit)
        self._commits = DeadLetterLimiter(pipeline.name, pipeline.dead_letter_limit)
        self._batch = (0, 0)  # its records, and how many rows its commit has rejected

    def check(
        self, reports: Sequence[RangeReport], derived: Sequence[DeadLetter], omitted: int = 0
    ) -> None:
        """Checks what the tasks counted; they carry no more bad records than there is room for.

        Args:
            reports: of the batch, in order of topic, partition and offset.
            derived: rows that the sink can't take, which belong to no record.
            omitted: such rows that could not be carried.

        Raises:
            DeadLetterLimitError: if too many are bad, or in a row, or they can't be carried.
        """
        records = sum(report.records for report in reports)
        self._commits.count(*self._batch)
        self._batch = (records, 0)
        bad = sum(report.bad for report in reports) + len(derived) + omitted
        self._limiter.count(records, bad, _first(reports, derived))
        for report in reports:
            partition = report.range.partition
            self._limiter.count_run(partition, report.bad_runs, _first([report]))
            if report.omitted:
                bad_records = f"the {report.bad} bad records of {partition}"
                raise self._too_many_bytes(bad_records, "a range of one batch", _first([report]))
        if omitted:
            rows = f"the {len(derived) + omitted} rows that the sink rejects"
            raise self._too_many_bytes(rows, "a task of one batch", _first((), derived))

    def check_steps(self, steps: StepReport) -> None:
        """Checks rows behind the watermark, which do not count against the limit.

        Raises:
            DeadLetterLimitError: if they can't be carried.
        """
        if steps.omitted:
            rows = f"the {len(steps.behind) + steps.omitted} rows behind the watermark"
            size = f"{MAX_BYTES >> 20} MiB in a task, or {MAX_BATCH_BYTES >> 20} MiB in one batch"
            reason = f"{rows} hold more than {size}; for example: {_first((), steps.behind)}"
            raise DeadLetterLimitError(self._pipeline, reason, _LESS_BEHIND)

    def _too_many_bytes(self, what: str, where: str, example: str) -> DeadLetterLimitError:
        size = f"{MAX_BYTES >> 20} MiB in {where}, or their share of {MAX_BATCH_BYTES >> 20} MiB"
        reason = f"{what} hold more than {size}; for example: {example}"
        return DeadLetterLimitError(self._pipeline, reason)

    def count_rejected(self, rows: Sequence[RejectedValues]) -> None:
        """Counts rows that the commit of the batch that was checked last has rejected.

        That counted the records, and their window may have ended since. So all records are counted
        a second time, in windows of commits. A commit may reject rows several times.

        Raises:
            DeadLetterLimitError: if too many are bad.
        """
        records, bad = self._batch
        self._batch = records, bad + len(rows)
        self._commits.check(*self._batch, f"a row: {rows[0].reason}, {rows[0].detail}")


def _first(reports: Sequence[RangeReport], derived: Sequence[DeadLetter] = ()) -> str:
    for report in reports:
        for letter in report.dead:
            return f"{letter.partition} offset {letter.offset}: {letter.reason}, {letter.detail}"
    return next((f"a row: {letter.reason}, {letter.detail}" for letter in derived), "none")
