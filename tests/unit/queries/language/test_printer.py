"""The text of a tree, parsed again, is the tree."""

from hypothesis import given
from tests.unit.queries.language.trees import queries

from headrace.queries.language.parser import parse_query
from headrace.queries.language.printer import print_query


@given(queries())
def test_the_text_of_a_tree_is_parsed_into_the_same_tree(query):
    assert parse_query(print_query(query)) == query
