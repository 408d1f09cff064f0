"""The task's half of a table of statistics: rows are grouped, and their sums are staged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.sinks.api import RejectedRow, TaskWriter, WriterFactory
from headrace.sinks.postgres.stats.grouping import StatsGrouping

if TYPE_CHECKING:
    import pyarrow as pa


class StatsWriter:
    """Hands the sums of a task's rows to the writer of a PostgreSQL table.

    Each call of :meth:`write` sends its own sums, so that rows which the table does not take are
    known while they are at hand. The transaction adds them up.

    Args:
        staging: opens the writer of the sums.
        grouping: how rows are grouped.
        task_id: of the task attempt.
    """

    def __init__(self, staging: WriterFactory, grouping: StatsGrouping, task_id: str) -> None:
        self._staging: TaskWriter = staging(task_id)
        self._grouping = grouping

    def write(self, rows: pa.Table) -> list[RejectedRow]:
        """Groups the rows; those of groups that the table does not take are returned.

        Raises:
            SinkUnavailableError: if the server does not answer.
            SinkError: if PostgreSQL refuses all of them.
        """
        rejected = self._grouping.unusable(rows)
        indices = _others(rows, rejected)
        usable = rows.take(indices) if rejected else rows
        groups = self._rejected_groups(self._grouping.sums(usable))
        members = self._grouping.members(usable) if groups else []
        for group, rejection in groups.items():
            for member in members[group]:
                rejected[indices[member]] = replace(rejection, index=indices[member])
        return [rejected[index] for index in sorted(rejected)]

    def close(self) -> Sequence[str]:
        """Returns the pieces of the staged sums."""
        return self._staging.close()

    def abort(self) -> None:
        """Drops what was staged."""
        self._staging.abort()

    def _rejected_groups(self, sums: pa.Table) -> Mapping[int, RejectedRow]:
        """Stages the sums, and returns those that can't be, by index."""
        rejected = self._grouping.infinite(sums)
        indices = _others(sums, rejected)
        if indices:
            for rejection in self._staging.write(sums.take(indices) if rejected else sums):
                rejected[indices[rejection.index]] = rejection
        return rejected


def _others(rows: pa.Table, rejected: Mapping[int, RejectedRow]) -> Sequence[int]:
    every = range(rows.num_rows)
    return [index for index in every if index not in rejected] if rejected else every
