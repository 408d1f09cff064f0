"""Expressions of Spark's plans as texts that are the same in every run.

A text has no expression ids, and names columns of the sources: what a projection in between has
made of them is put in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.spark.analyzed_plans import analyzed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WINDOWS = {"spark.timeWindow": "window", "spark.sessionWindow": "session_window"}
_ZEROS = frozenset({"0", "0L"})
_FIELDS_OF_WINDOWS = frozenset({"'start'", "'end'"})


def items(sequence: Any) -> list[Any]:
    """Returns the items of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]


def changed_columns(rows: DataFrame, names: Iterable[str]) -> tuple[str, ...]:
    """Returns those of ``names`` that ``rows`` do not have as the source gave them."""
    plan = analyzed(rows)
    texts = PlanExpressions(plan)
    columns = {column.name(): texts.text(column) for column in items(plan.output())}
    return tuple(name for name in names if columns.get(name) != name)


class PlanExpressions:
    """Writes the expressions of one analyzed plan as texts."""

    def __init__(self, plan: Any) -> None:
        self._definitions: dict[int, Sequence[Any]] = {}
        self._texts: dict[int, str] = {}
        self._define(plan)

    def text(self, expression: Any) -> str:
        """Returns an expression as text."""
        match expression.nodeName():
            case "AttributeReference":
                return self._column(expression)
            case "Literal":
                return str(expression.sql())
            case "Alias":
                return self.text(expression.child())
            case "NamedLambdaVariable":  # x_1: the number counts all lambdas of the process
                return str(expression.name()).rpartition("_")[0]
            case "Cast":
                return f"cast({self.text(expression.child())} as {expression.dataType().sql()})"
        parts = [self.text(child) for child in items(expression.children())]
        return f"{expression.prettyName()}({', '.join((*parts, *_parameters(expression)))})"

    def aggregates(self, expression: Any) -> Iterator[str]:
        """Yields the aggregate functions in an expression."""
        if expression.nodeName() == "AggregateExpression":
            distinct = "distinct " if expression.isDistinct() else ""
            yield distinct + " where ".join(map(self.text, items(expression.children())))
            return
        for child in items(expression.children()):
            yield from self.aggregates(child)

    def _define(self, plan: Any) -> None:
        for child in items(plan.children()):
            self._define(child)
        match plan.nodeName():
            case "Project":
                self._define_aliases(plan.projectList())
            case "Aggregate":
                self._define_aliases(plan.aggregateExpressions())
            case "Expand":  # sliding windows: a row for each window that it is in
                rows = [items(row) for row in items(plan.projections())]
                for column, definitions in zip(
                    items(plan.output()), zip(*rows, strict=True), strict=True
                ):
                    self._definitions.setdefault(column.exprId().id(), definitions)

    def _define_aliases(self, expressions: Any) -> None:
        for expression in items(expressions):
            if expression.nodeName() == "Alias":
                self._definitions.setdefault(expression.exprId().id(), [expression.child()])

    def _column(self, column: Any) -> str:
        column_id = column.exprId().id()
        if column_id not in self._texts:
            # Set first: Expand passes columns on under the ids that they had.
            self._texts[column_id] = column.name()
            definitions = self._definitions.get(column_id)
            if definitions is not None:
                self._texts[column_id] = self._defined(column, definitions)
        return self._texts[column_id]

    def _defined(self, column: Any, definitions: Sequence[Any]) -> str:
        metadata = column.metadata()
        for key, name in _WINDOWS.items():
            # A dozen calculations on the event time, of which column and lengths say everything.
            if metadata.contains(key):
                leaves = (leaf for definition in definitions for leaf in self._leaves(definition))
                many = [f"{len(definitions)} of each row"] if len(definitions) > 1 else []
                return f"{name}({', '.join([*dict.fromkeys(leaves), *many])})"
        return " or ".join(dict.fromkeys(map(self.text, definitions)))

    def _leaves(self, expression: Any) -> Iterator[str]:
        children = items(expression.children())
        if not children:
            text = self.text(expression)
            if text not in _ZEROS | _FIELDS_OF_WINDOWS:
                yield text
        for child in children:
            yield from self._leaves(child)


def _parameters(expression: Any) -> Iterator[str]:
    """Yields what an expression has beside its children: an index, a flag, a function's name."""
    parameters = expression.productIterator()
    while parameters.hasNext():
        parameter = parameters.next()
        if isinstance(parameter, str | int | float):
            yield str(parameter)
