"""``filter_rows``: drops rows for reasons that are named and counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from headrace.ledger.sums import Fate
from headrace.metrics import Metric
from headrace.model import FieldType
from headrace.model.fault import Fault
from headrace.pipelines.transforms.rules import UNDECIDED, rule_faults, with_first_rule
from headrace.pipelines.transforms.transform import Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipelines.ledger.counting.step_ledger import StepLedger

_REASON = "_headrace_reason"


@dataclass(frozen=True)
class filter_rows(Transform):  # noqa: N801  a verb, as the steps of users are
    """Step: drops rows, and counts them by the reason.

    ========= ==================================================================================
    columns   as they come in
    drops     rows for which a condition of ``drop`` is true: ``filtered_rows``. Each counts for
              the first such condition only: ``filtered_<reason>_rows``
    keeps     all others, in their order; also those for which no condition is true and one is
              null, as of a field that is absent: ``filter_undecided_rows``. To drop them, say so:
              ``coalesce(country <> 'PL', true)``
    ledger    dropped rows have the fate *filtered*
    state     none; the reasons may change at any time
    a crash   repeats nothing, and a batch that is repeated drops the same rows again. So a
              condition must not depend on chance: one with ``rand()`` refuses the start
    ========= ==================================================================================

    A condition is an expression in Spark's SQL. ``headrace check`` does not read it; where it is
    wrong, or names a column that is not there, the start is refused.

    Attributes:
        drop: conditions by the reason to drop a row, in the order in which they are tried. A
            reason is part of the name of a metric: a letter, then letters, digits and ``_``.
        ledger: set by headrace where the pipeline runs.
    """

    drop: Mapping[str, str]
    ledger: StepLedger | None = field(default=None, repr=False, compare=False)

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            "filtered_rows",
            "rows",
            "rows that `filter_rows` dropped, for all reasons",
            "a step up or down: look at the figures of the reasons",
            is_counter=True,
        ),
        Metric(
            "filter_undecided_rows",
            "rows",
            "rows that `filter_rows` kept although a condition is null for them",
            "not 0: a column of a condition is null; say in the condition what null means",
            is_counter=True,
        ),
    )

    @property
    def all_metrics(self) -> tuple[Metric, ...]:
        """The metrics of every ``filter_rows``, and one for each reason."""
        return (
            *self.metrics,
            *(
                Metric(
                    _figure(reason),
                    "rows",
                    f"rows that `filter_rows` dropped for the reason `{reason}`",
                    "a step up or down: the events have changed, or the condition",
                    is_counter=True,
                )
                for reason in self.drop
            ),
        )

    keeps_lineage: ClassVar[bool] = True

    def with_ledger(self, ledger: StepLedger) -> filter_rows:
        """Returns the step with what counts the rows that it drops."""
        return replace(self, ledger=ledger)

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Finds the reason of each row, counts it, and drops the rows that have one."""
        from pyspark.sql import functions as F  # noqa: N812

        reason = F.col(_REASON)
        is_kept = reason.isNull() | (reason == UNDECIDED)
        by_reason = {_figure(name): reason == name for name in self.drop}
        counted = self.count(
            with_first_rule(rows, _REASON, self.drop),
            filtered_rows=~is_kept,
            filter_undecided_rows=reason == UNDECIDED,
            **by_reason,
        )
        if self.ledger is None:
            return counted.where(is_kept).drop(_REASON)
        return self.ledger.without(counted, ~is_kept, Fate.FILTERED).drop(_REASON)

    def faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:  # noqa: ARG002
        """Yields a fault for conditions that are missing, and for reasons that are no names."""
        yield from rule_faults(
            "filter_rows.drop", self.drop, 'drop={"bot": "agent LIKE \'%bot%\'"}'
        )

    def columns_after(self, columns: Mapping[str, FieldType]) -> Mapping[str, FieldType]:
        """Returns the columns that come in."""
        return columns


def _figure(reason: str) -> str:
    return f"filtered_{reason}_rows"
