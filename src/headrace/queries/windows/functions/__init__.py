"""The aggregates of standing queries, as partials that merge.

rows of a batch -> Aggregation -> a partial per group -> Accumulator, from any batches -> value

It imports Arrow, NumPy and DataSketches: import it only in modules that use rows or partials.
"""

from headrace.queries.windows.functions.aggregation import Accumulator, Aggregation, Places
from headrace.queries.windows.functions.aggregations import aggregation_of
from headrace.queries.windows.functions.partial import Partial, PartialError

__all__ = ["Accumulator", "Aggregation", "Partial", "PartialError", "Places", "aggregation_of"]
