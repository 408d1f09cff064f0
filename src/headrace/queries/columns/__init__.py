"""Events, expressions and their constants as columns of Spark's own functions.

with_event (events)  -> parsing, values, validity, texts
column_of (compiler) -> operations, case, patterns
ConstantLayout (constants)

Real-time mode runs no Python, so that events are read and conditions evaluated in functions that
Spark knows. What they mean is what :mod:`headrace.queries.evaluation` says on Arrow columns. No
text of a query is parsed by Spark, and no value makes a task fail, in ANSI mode or not.
"""

from headrace.queries.columns.compiler import column_of
from headrace.queries.columns.constants import ConstantLayout
from headrace.queries.columns.events import with_event

__all__ = ["ConstantLayout", "column_of", "with_event"]
