"""The rows that rules match are those that each query alone has."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant
from hypothesis.stateful import rule as step
from tests.unit.queries.compile.arrow.expressions import (
    ROWS,
    VISIT_COLUMNS,
    VISITS,
    with_other_constants,
)
from tests.unit.queries.match.clicks import clicks, rule
from tests.unit.queries.query_strategies import EVENTS, WHERES

from headrace.queries.compile.arrow import compile_expression
from headrace.queries.language.tree import Aggregate, Query, Result
from headrace.queries.match import index as index_module
from headrace.queries.match.rules import RuleSet
from headrace.queries.match.shape import Rule, compile_query

COUNT = (Result(Aggregate("count")),)
IDS = st.sampled_from("abcdef")


def pairs(rules, rows):
    """Returns pairs of a query and a row that matches it; each comes once."""
    listed = [
        (rules.rule(slot).query_id, row)
        for matches in rules.matches(rows)
        for slot, row in zip(matches.slots.tolist(), matches.rows.tolist(), strict=True)
    ]
    assert len(set(listed)) == len(listed)
    return set(listed)


def rule_set(**conditions):
    rules = RuleSet()
    for query_id, condition in conditions.items():
        rules.put(rule(query_id, condition))
    return rules


def test_rows_match_by_all_operands():
    rules = rule_set(
        a="user = 1 AND price > 2", b="user = 1 AND price > 5", c="user = 2 AND price > 2"
    )
    rows = clicks({"user": 1, "price": 3.0}, {"user": 2, "price": 6.0}, {"user": 1})
    assert pairs(rules, rows) == {("a", 0), ("c", 1)}


def test_columns_are_those_of_conditions_results_and_facets_of_the_rules_that_are_left():
    rules = rule_set(
        a="SELECT sum(price) FROM clicks WHERE user = 1 FACET country",
        b="SELECT count(*) FROM clicks WHERE kind = 'view'",
    )
    assert rules.columns == {"price", "user", "country", "kind"}
    rules.remove("a")
    assert rules.columns == {"kind"}
    rules.remove("b")
    assert rules.columns == set()


def test_a_query_without_a_condition_has_all_rows():
    rules = rule_set(all="SELECT count(*) FROM clicks", true="TRUE", false="FALSE")
    assert pairs(rules, clicks({}, {})) == {
        (query, row) for query in ("all", "true") for row in range(2)
    }


def test_ranges_without_an_equality_match():
    rules = rule_set(low="price < 2", high="price >= 2", mid="price BETWEEN 1 AND 2 AND is_new")
    rows = clicks({"price": 1.0, "is_new": True}, {"price": 2.0}, {})
    assert pairs(rules, rows) == {("low", 0), ("high", 1), ("mid", 0)}


def test_a_query_that_is_put_again_is_replaced():
    rules = rule_set(a="user = 1", b="user = 1")
    rows = clicks({"user": 1}, {"user": 2})
    assert pairs(rules, rows) == {("a", 0), ("b", 0)}
    rules.put(rule("a", "user = 2"))
    assert len(rules) == 2
    assert pairs(rules, rows) == {("a", 1), ("b", 0)}


def test_a_query_that_is_removed_matches_nothing():
    rules = rule_set(a="user = 1", b="price > 1")
    rules.remove("a")
    rules.remove("b")
    rules.remove("unknown")
    assert len(rules) == 0
    assert pairs(rules, clicks({"user": 1, "price": 2.0})) == set()


def test_a_set_without_rules_matches_nothing():
    assert pairs(RuleSet(), clicks({})) == set()


def test_rows_without_columns_of_a_condition_are_matched():
    assert pairs(rule_set(a="1 = 1 AND 'a' = 'a'"), clicks({}, {})) == {("a", 0), ("a", 1)}


@pytest.mark.parametrize("condition", ["user >= 0", "user = 1", "user = 1 AND price IS NULL"])
def test_many_pairs_are_divided(condition):
    rules = rule_set(**dict.fromkeys("abc", condition))
    rows = clicks(*[{"user": 1}] * 5)
    [whole] = rules.matches(rows)
    rules.max_pairs = 4
    parts = list(rules.matches(rows))
    assert len(whole.rows) == 15
    assert len(parts) > 1
    assert max(len(part.rows) for part in parts) <= 5
    assert pairs(rules, rows) == {(query, row) for query in "abc" for row in range(5)}


class ChangingRules(RuleBasedStateMachine):
    """Rules that are put, replaced and removed between batches."""

    def __init__(self):
        super().__init__()
        self.rules, self.conditions = RuleSet(), {}

    @initialize()
    def limit(self):
        """Small batches have frequent values, are looked at often, and are divided."""
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(index_module, "FREQUENT_SHARE", 0.1)
        self.rules.indexes.rounds_between_looks, self.rules.max_pairs = 2, 7

    def teardown(self):
        self.patch.undo()

    @step(query_id=IDS, where=WHERES)
    def put(self, query_id, where):
        shape, constants = compile_query(Query(COUNT, "visits", where), VISITS)
        self.rules.put(Rule(query_id=query_id, shape=shape, constants=constants))
        self.conditions[query_id] = where

    @step(query_id=IDS, model=IDS, data=st.data())
    def put_one_of_the_shape(self, query_id, model, data):
        where = self.conditions.get(model)
        if where is not None:
            self.put(query_id, data.draw(with_other_constants(where)))

    @step(query_id=IDS)
    def remove(self, query_id):
        self.rules.remove(query_id)
        self.conditions.pop(query_id, None)

    @step(rows=st.lists(EVENTS, max_size=6) | ROWS.map(lambda rows: rows.to_pylist()))
    def match(self, rows):
        table = pa.Table.from_pylist(rows, VISIT_COLUMNS)
        expected = {
            (query_id, row)
            for query_id, where in self.conditions.items()
            for row in self._rows_alone(where, table)
        }
        assert pairs(self.rules, table) == expected

    @invariant()
    def all_queries_have_rules(self):
        assert len(self.rules) == len(self.conditions)

    def _rows_alone(self, where, table):
        if where is None:
            return range(table.num_rows)
        values = compile_expression(where, VISITS).evaluate(table).to_pylist()
        return [row for row, value in enumerate(values) if value]


ChangingRules.TestCase.settings = settings(max_examples=150, stateful_step_count=20)
TestChangingRulesMatchAsEachQueryAlone = ChangingRules.TestCase
