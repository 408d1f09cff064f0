"""Evaluates expressions on Arrow columns.

compiler, with constants -> expression -> kernels
equality, with the compiler: operands of a WHERE by which an index can look queries up
"""

from headrace.queries.compile.arrow.compiler import compile_expression
from headrace.queries.compile.arrow.equality import IndexedEquality, equality_of
from headrace.queries.compile.arrow.expression import ARROW_TYPES, CompiledExpression

__all__ = [
    "ARROW_TYPES",
    "CompiledExpression",
    "IndexedEquality",
    "compile_expression",
    "equality_of",
]
