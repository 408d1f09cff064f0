"""Events, expressions and their constants as Spark columns of built-in functions.

with_event (events)  -> parsing, values, validity, texts
column_of (compiler) -> operations, case, patterns
ConstantLayout (constants)

Real-time mode runs no Python, so built-in functions of Spark parse events and evaluate conditions.
Values are those of :mod:`headrace.queries.compile.arrow` on Arrow columns. Spark parses no text of
a query, and no value makes a task fail, in ANSI mode or not.
"""

from headrace.queries.compile.spark.compiler import column_of
from headrace.queries.compile.spark.constants import ConstantLayout
from headrace.queries.compile.spark.events import with_event

__all__ = ["ConstantLayout", "column_of", "with_event"]
