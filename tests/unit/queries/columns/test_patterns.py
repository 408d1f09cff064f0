"""Patterns are expressions that Java can match without a deep stack."""

import pytest

from headrace.queries.columns.patterns import pieces_of, regular_expression


@pytest.mark.parametrize(
    ("pattern", "pieces"),
    [
        ("", [[]]),
        ("men", [["men"]]),
        ("%", [[], []]),
        ("%%a%%", [[], ["a"], []]),
        ("a__b%_", [["a", 2, "b"], [1]]),
        ("\\%\\_\\\\\\a", [["%_\\a"]]),
        ("a\n%\\\n", [["a\n"], ["\n"]]),
    ],
)
def test_a_pattern_is_divided_at_each_run_of_percent_signs(pattern, pieces):
    assert pieces_of(pattern) == pieces


def test_no_group_has_more_than_fifty_parts():
    groups = regular_expression(pieces_of("%" + "a_" * 1_000)).split("(?>")
    assert max(group.count("a") + group.count(".{1}") for group in groups) == 50
    assert sum(group.count("a") for group in groups) == 1_000


def test_what_has_a_meaning_in_an_expression_is_a_character_of_the_text():
    assert regular_expression([["a.b\\E", 3]]) == r"(?s)\A(?>a\.b\\E.{3})\z"
