"""The text of a tree, parsed again, is the tree."""

from hypothesis import given
from tests.unit.queries.language.trees import queries

from headrace.queries.language.clauses import CLAUSES, parse_query, print_query


@given(queries())
def test_the_text_of_a_tree_is_parsed_into_the_same_tree(query):
    assert parse_query(print_query(query)) == query


def test_clauses_at_their_defaults_are_left_out():
    """Printed defaults would change the text and the shape of every registered query."""
    text = "SELECT count(*)\nFROM t\nWINDOW 1 minute"
    assert print_query(parse_query("SELECT count(*) FROM t")) == text


def test_every_clause_is_printed_in_the_order_of_clauses():
    text = """SELECT count(*)
FROM t
WHERE a = 1
FACET b
LIMIT 20
WINDOW 1 minute
SLIDE BY 10 seconds
ALLOWED LATENESS 1 hour
CLOSE BY QUIET TIME 30 seconds
EMIT EARLY EVERY 5 seconds
EMPTY WINDOWS EMIT
MATCHED EVENTS EMIT
LOSS OF SIGNAL AFTER 3 WINDOWS"""
    query = parse_query(text)
    assert print_query(query) == text
    assert list(query.clauses) == [clause.name for clause in CLAUSES]
