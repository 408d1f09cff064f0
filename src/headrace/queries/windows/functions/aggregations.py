"""The aggregation class of each aggregate of the query language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headrace.queries.language.functions import ValueType
from headrace.queries.language.tree import Aggregate
from headrace.queries.windows.functions.aggregation import Aggregation
from headrace.queries.windows.functions.counts import CountAggregation, HistogramAggregation
from headrace.queries.windows.functions.exact_numbers import unit_bits
from headrace.queries.windows.functions.sketches import (
    PercentileAggregation,
    UniqueCountAggregation,
)
from headrace.queries.windows.functions.sums import (
    AverageAggregation,
    StddevAggregation,
    SumAggregation,
)
from headrace.queries.windows.functions.values import ExtremeAggregation, LatestAggregation

_Make: TypeAlias = Callable[[Aggregate, ValueType], Aggregation[Any]]

_OF_VALUES: Mapping[str, _Make] = {
    "count": lambda aggregate, _: CountAggregation(aggregate.per),
    "sum": lambda aggregate, argument: SumAggregation(unit_bits(argument), aggregate.per),
    "average": lambda _, argument: AverageAggregation(unit_bits(argument)),
    "min": lambda _, argument: ExtremeAggregation(argument, is_max=False),
    "max": lambda _, argument: ExtremeAggregation(argument, is_max=True),
    "stddev": lambda _, argument: StddevAggregation(unit_bits(argument)),
    "latest": lambda _, argument: LatestAggregation(argument),
    "uniqueCount": lambda _, __: UniqueCountAggregation(),
    "percentile": lambda aggregate, _: PercentileAggregation(*aggregate.parameters),
    "histogram": lambda aggregate, _: HistogramAggregation.of(*aggregate.parameters),
}


def aggregation_of(aggregate: Aggregate, argument: ValueType | None) -> Aggregation[Any]:
    """Returns the aggregation of an aggregate of a checked query.

    The caller must leave out the rows that the aggregate's ``where`` excludes.

    Args:
        aggregate: the aggregate of the query.
        argument: the type of its argument; ``None`` for ``count(*)``.
    """
    if argument is None:
        return CountAggregation(aggregate.per)
    return _OF_VALUES[aggregate.function](aggregate, argument)
