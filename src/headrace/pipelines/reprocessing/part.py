"""One part of a reprocessing on the driver: what its commit and its ledger entry record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.model import OffsetRange, Topic
from headrace.pipelines.batch.positions import CheckpointIds
from headrace.pipelines.ledger.counting.table_columns import ledger_columns
from headrace.pipelines.ledger.counting.tally import LedgerRule
from headrace.pipelines.ledger.entry import EntryRange
from headrace.pipelines.ledger.reprocessed import ReprocessedEntry, WindowChange, changes_of
from headrace.pipelines.reprocessing.plan import ReprocessPlan
from headrace.pipelines.source.report import RangeReport
from headrace.sinks.api import RowChanges, Transaction


@dataclass
class ReprocessedPart:
    """One part while it is done.

    Attributes:
        number: of the part, among all of the pipeline; from 1.
        ranges: its offsets, one range for each partition that has some.
        reports: of its read tasks; empty until they have ended.
        dead: records and rows that were rejected so far.
        kept: rows that the commit left out, as the sink has them already.
    """

    number: int
    ranges: Sequence[OffsetRange]
    reports: Sequence[RangeReport] = ()
    dead: int = 0
    kept: int = 0

    @property
    def records(self) -> int:
        """How many records were read."""
        return sum(report.records for report in self.reports)

    def entry(
        self, plan: ReprocessPlan, topic: Topic, window_seconds: int, changes: RowChanges | None
    ) -> ReprocessedEntry:
        """Returns what the ledger says of the part.

        Args:
            plan: of which it is a part.
            topic: that was read.
            window_seconds: length of the ledger's windows.
            changes: rows that its commit adds and removes; those without the column of the event
                time are of no window, those without an id have no hash. None: the sink does not
                say.
        """
        changed: tuple[WindowChange, ...] = ()
        if changes is not None:
            rows = (changes.added, changes.removed)
            rule = LedgerRule(window_seconds, topic.event_time, topic.event_id)
            changed = changes_of(*(ledger_columns(rule, table).sums for table in rows))
        return ReprocessedEntry(
            number=self.number,
            start=plan.times.start,
            end=plan.times.end,
            ranges=tuple(
                EntryRange(
                    topic.name,
                    plan.topic_id,
                    range_.partition.partition,
                    range_.start,
                    range_.end,
                )
                for range_ in self.ranges
            ),
            records=self.records,
            dead=self.dead,
            window_seconds=window_seconds,
            changes=changed,
            checkpoint=plan.checkpoint,
        )

    def transaction(self, plan: ReprocessPlan) -> Transaction:
        """Returns what its commit records in a sink that records positions."""
        ids = CheckpointIds(plan.pipeline, 0)
        offsets = {str(range_.partition): [range_.start, range_.end] for range_ in self.ranges}
        # Not under the key of the pipeline's own commits, after which a RESTORE is looked for.
        facts = {"pipeline": plan.pipeline, "number": self.number, "offsets": offsets}
        return Transaction(
            {ids.reprocess: self.number},
            # A reset of the pipeline would move the positions up to which records are taken.
            {ids.reprocess: self.number - 1 or None, ids.newest: plan.checkpoint},
            {"reprocess": facts},
        )
