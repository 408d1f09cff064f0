"""Rules: names with conditions in Spark's SQL, of which the first or all that are true apply."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from headrace.model.fault import Fault
from headrace.pipelines.start.plan_expressions import items
from headrace.spark.analyzed_plans import analyzed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNDECIDED = ""
"""In place of a rule's name: a condition is null."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def with_first_rule(rows: DataFrame, column: str, rules: Mapping[str, str]) -> DataFrame:
    """Returns ``rows`` with the name of the first rule whose condition is true, as ``column``.

    It is :data:`UNDECIDED` where no condition is true and one is null, and null where all are
    false.

    Raises:
        ValueError: if a condition depends on chance.
    """
    from pyspark.sql import functions as F  # noqa: N812

    conditions = {name: F.expr(condition) for name, condition in rules.items()}
    names = [F.when(condition, F.lit(name)) for name, condition in conditions.items()]
    nulls = [F.when(condition.isNull(), F.lit(UNDECIDED)) for condition in conditions.values()]
    return _repeatable(rows.withColumn(column, F.coalesce(*names, *nulls)), rules)


def with_every_rule(rows: DataFrame, column: str, rules: Mapping[str, str]) -> DataFrame:
    """Returns ``rows`` with the names of all rules whose conditions are true, as ``column``.

    It is an array, in the order of the rules, with :data:`UNDECIDED` for each condition that is
    null.

    Raises:
        ValueError: if a condition depends on chance.
    """
    from pyspark.sql import functions as F  # noqa: N812

    conditions = {name: F.expr(condition) for name, condition in rules.items()}
    names = [
        F.when(condition, F.lit(name)).when(condition.isNull(), F.lit(UNDECIDED))
        for name, condition in conditions.items()
    ]
    return _repeatable(rows.withColumn(column, F.array_compact(F.array(*names))), rules)


def _repeatable(rows: DataFrame, rules: Mapping[str, str]) -> DataFrame:
    """Returns ``rows`` unless their last column is another one each time."""
    plan = analyzed(rows)
    # Of the last operator alone: those below may hold functions that only Spark must not move.
    if not all(expression.deterministic() for expression in items(plan.expressions())):
        conditions = ", ".join(rules.values())
        raise ValueError(f"a batch that is repeated must be decided as before: {conditions}")
    return rows


def rule_faults(place: str, rules: object, example: str) -> Iterator[Fault]:
    """Yields what is wrong with rules, but for their SQL, which only Spark can read.

    Args:
        place: where they are declared: ``classify.rules``.
        rules: what is declared.
        example: of a declaration that is right.
    """
    if not isinstance(rules, Mapping) or not rules:
        yield Fault(f"{place} is {rules!r}", example)
        return
    for name, condition in rules.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            remedy = "a letter, then letters, digits and _: it is part of the name of a metric"
            yield Fault(f"{place} has the name {name!r}", remedy)
        if not isinstance(condition, str) or not condition.strip():
            yield Fault(f"{place}[{name!r}] is {condition!r}", f"a condition in SQL: {example}")
