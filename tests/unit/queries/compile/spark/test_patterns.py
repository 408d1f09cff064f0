"""Patterns are expressions that Java can match without a deep stack."""

from headrace.queries.compile.spark.patterns import regular_expression
from headrace.queries.language.patterns import pieces_of


def test_no_group_has_more_than_fifty_parts():
    groups = regular_expression(pieces_of("%" + "a_" * 1_000)).split("(?>")
    assert max(group.count("a") + group.count(".{1}") for group in groups) == 50
    assert sum(group.count("a") for group in groups) == 1_000


def test_what_has_a_meaning_in_an_expression_is_a_character_of_the_text():
    assert regular_expression([["a.b\\E", 3]]) == r"(?s)\A(?>a\.b\\E.{3})\z"
