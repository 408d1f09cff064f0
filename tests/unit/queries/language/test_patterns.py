"""Patterns of ``LIKE`` are pieces between ``%``."""

import pytest

from headrace.queries.language.patterns import pieces_of


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
