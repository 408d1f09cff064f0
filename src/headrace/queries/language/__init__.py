"""The language of standing queries: texts, trees and types.

words -> parser, expressions -> tree -> printer
                                     -> checks, with the schema of a topic
"""

from headrace.queries.language.checks import check_query, result_types
from headrace.queries.language.parser import parse_query
from headrace.queries.language.printer import print_query

__all__ = ["check_query", "parse_query", "print_query", "result_types"]
