"""The language of standing queries: texts, trees and types.

words -> parser, expressions -> tree -> printer, by the table of clauses
                                     -> checks, with the schema of a topic
"""

from headrace.queries.language.checks import check_query, result_types
from headrace.queries.language.clauses import parse_query, print_query

__all__ = ["check_query", "parse_query", "print_query", "result_types"]
