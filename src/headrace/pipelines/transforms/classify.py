"""``classify``: names the class of each row, by the first rule that applies to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.metrics import Metric
from headrace.model import FieldType
from headrace.model.fault import Fault, is_a
from headrace.pipelines.transforms.rules import UNDECIDED, rule_faults, with_first_rule
from headrace.pipelines.transforms.transform import Transform, new_column, refuse_taken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RULE = "_headrace_rule"


@dataclass(frozen=True)
class classify(Transform):  # noqa: N801  a verb, as the steps of users are
    """Step: adds a column with the class of the row.

    ========= ==================================================================================
    columns   as they come in, and ``into``, string: the name of the first rule whose condition is
              true, or ``default``
    gives     every row, in order. Rows are counted by class, ``classified_<name>_rows``, and those
              of no rule as ``unclassified_rows``
    null      a condition that is null is not true, so the next rule is tried. Rows of no rule for
              which a condition is null count as ``classify_undecided_rows``, too
    state     none; the rules may change at any time, and rows that are written keep their class
    a crash   repeats nothing, and a batch that is repeated gives the same classes. So a condition
              must not depend on chance: one with ``rand()`` refuses the start
    ========= ==================================================================================

    A condition is an expression in Spark's SQL. ``headrace check`` does not read it; where it is
    wrong, or names a column that is not there, the start is refused.

    Attributes:
        into: the column to add; no column of the rows has its name.
        rules: conditions by the name of the class, in the order in which they are tried. A name is
            part of the name of a metric: a letter, then letters, digits and ``_``.
        default: the class of rows to which no rule applies; None: null.
    """

    into: str
    rules: Mapping[str, str]
    default: str | None = None

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            "unclassified_rows",
            "rows",
            "rows to which no rule of `classify` applies; they have its default",
            "rising: events of a new kind come, which have no rule yet",
            is_counter=True,
        ),
        Metric(
            "classify_undecided_rows",
            "rows",
            "unclassified rows for which the condition of a rule of `classify` is null",
            "not 0: a column of a condition is null; say in the condition what null means",
            is_counter=True,
        ),
    )

    @property
    def all_metrics(self) -> tuple[Metric, ...]:
        """The metrics of every ``classify``, and one for each class."""
        return (
            *self.metrics,
            *(
                Metric(
                    _figure(name),
                    "rows",
                    f"rows of the class `{name}` of `classify`",
                    "a step up or down: the events have changed, or the rule",
                    is_counter=True,
                )
                for name in self.rules
            ),
        )

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Finds the rule of each row, counts it, and names it."""
        from pyspark.sql import functions as F  # noqa: N812

        refuse_taken("classify.into", self.into, rows)
        rule = F.col(_RULE)
        has_rule = rule.isNotNull() & (rule != UNDECIDED)
        by_class = {_figure(name): rule == name for name in self.rules}
        counted = self.count(
            with_first_rule(rows, _RULE, self.rules),
            unclassified_rows=~has_rule,
            classify_undecided_rows=rule == UNDECIDED,
            **by_class,
        )
        named = F.when(has_rule, rule).otherwise(F.lit(self.default).cast("string"))
        return counted.withColumn(self.into, named).drop(_RULE)

    def faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:
        """Yields a fault for rules that are missing, and for a column that is there already."""
        example = "rules={\"mobile\": \"device IN ('phone', 'tablet')\"}"
        yield from rule_faults("classify.rules", self.rules, example)
        yield from new_column("classify.into", self.into, columns)
        if not is_a(self.default, str | None):
            yield Fault(f"classify.default is {self.default!r}", 'default="other", or None')

    def columns_after(self, columns: Mapping[str, FieldType]) -> Mapping[str, FieldType]:
        """Returns the columns that come in, and its own."""
        return {**columns, self.into: FieldType.STRING}


def _figure(name: str) -> str:
    return f"classified_{name}_rows"
