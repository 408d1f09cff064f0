"""The limit of dead letters: pipelines and workers stop by the same two rules.

Pipelines count batches (here), workers by where records were read (``workers/failures/limit.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import DeadLetterLimitError
from headrace.model import DeadLetterLimit, TopicPartition


@dataclass(frozen=True, slots=True)
class BadRuns:
    """Runs of bad records in a row, kept so that neighbouring stretches can be joined.

    ``leading`` and ``trailing`` are the runs at the edges, ``longest`` the longest anywhere.
    """

    records: int = 0
    leading: int = 0
    longest: int = 0
    trailing: int = 0

    @classmethod
    def of(cls, bad: Sequence[int], records: int) -> BadRuns:
        """Returns the runs among ``records`` records whose ascending indices ``bad`` are bad."""
        longest = run = leading = 0
        previous = -2
        for index in bad:
            run = run + 1 if index == previous + 1 else 1
            longest = max(longest, run)
            leading = run if run == index + 1 else leading
            previous = index
        trailing = run if bad and bad[-1] == records - 1 else 0
        return cls(records, leading, longest, trailing)

    @classmethod
    def unbroken(cls, records: int) -> BadRuns:
        """Returns the runs of ``records`` records that are all bad."""
        return cls(records, records, records, records)

    def then(self, following: BadRuns) -> BadRuns:
        """Returns the runs of this stretch and the one right after it, as one stretch."""
        return BadRuns(
            self.records + following.records,
            self.leading + (following.leading if self.leading == self.records else 0),
            max(self.longest, following.longest, self.trailing + following.leading),
            following.trailing + (self.trailing if following.trailing == following.records else 0),
        )


class DeadLetterRules:
    """The two rules of a limit, which pipelines and workers count for in different ways.

    Args:
        kind: of what stops: ``pipeline`` or ``worker``.
        name: of the pipeline or worker.
        limit: as it declares it.
    """

    def __init__(self, kind: str, name: str, limit: DeadLetterLimit) -> None:
        self._kind, self._name, self.limit = kind, name, limit

    def check_share(self, bad: int, records: int, example: str) -> None:
        """Checks ``bad`` records of ``records``, which may be a window that has not ended.

        Raises:
            DeadLetterLimitError: if the share of bad records is certain to exceed ``max_ratio``.
        """
        window, ratio = max(records, self.limit.min_records), self.limit.max_ratio
        if bad > ratio * window:
            share = f"{bad} of {records} records are bad"
            allowed = f"max_ratio {ratio} allows {int(ratio * window)} of {window}"
            raise self._error(f"{share} ({allowed})", example)

    def check_run(self, run: int, partition: TopicPartition, example: str) -> None:
        """Checks ``run`` bad records in a row.

        Raises:
            DeadLetterLimitError: if they are more than ``max_consecutive``.
        """
        most = self.limit.max_consecutive
        if run > most:
            reason = f"{run} bad records in a row in {partition} (max_consecutive {most})"
            raise self._error(reason, example)

    def _error(self, reason: str, example: str) -> DeadLetterLimitError:
        last = f"; for example: {example}" if example else ""
        return DeadLetterLimitError(self._name, reason + last, kind=self._kind)


class DeadLetterLimiter:
    """Stops a pipeline that writes too many dead letters.

    It counts the records of its batches, which are in the order of their partitions, once: by
    :meth:`count`, and by :meth:`count_run` within a partition. Counts start at zero with each
    start. What is counted is not written yet, so nothing is written beyond the limit.

    - A run of bad records in a partition ends at its first good one, in whichever batch that is.
    - The share of bad records is that of a window, which ends when it has ``min_records`` or more.
      A window that is certain to end beyond the limit is not waited for.

    Args:
        pipeline: its name.
        limit: as it declares it.
    """

    def __init__(self, pipeline: str, limit: DeadLetterLimit) -> None:
        self._rules = DeadLetterRules("pipeline", pipeline, limit)
        self._runs: dict[TopicPartition, int] = {}
        self._records = self._bad = 0

    def count(self, records: int, bad: int, example: str = "") -> None:
        """Counts ``records``, of which ``bad`` are bad, towards the share.

        Raises:
            DeadLetterLimitError: if the share of bad records is beyond ``max_ratio``.
        """
        self.check(records, bad, example)
        self._records += records
        self._bad += bad
        if self._records >= self._rules.limit.min_records:
            self._records = self._bad = 0

    def check(self, records: int, bad: int, example: str = "") -> None:
        """Checks the window with records that are counted later.

        Raises:
            DeadLetterLimitError: as :meth:`count`.
        """
        self._rules.check_share(self._bad + bad, self._records + records, example)

    def count_run(self, partition: TopicPartition, runs: BadRuns, example: str = "") -> None:
        """Counts the records of ``partition`` that follow those which were counted before.

        Raises:
            DeadLetterLimitError: if more than ``max_consecutive`` bad ones are in a row.
        """
        joined = BadRuns.unbroken(self._runs.get(partition, 0)).then(runs)
        self._runs[partition] = joined.trailing
        self._rules.check_run(joined.longest, partition, example)
