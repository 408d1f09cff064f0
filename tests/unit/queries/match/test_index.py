"""A rule is looked up by the value that fewest events have, as observed."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from tests.unit.queries.match.clicks import clicks, compiled, rule

from headrace.queries.match.index import FREQUENT_SHARE, EncodedValues, Indexes

VIEWS = clicks(*({"user": number, "kind": "view"} for number in range(99)), {"kind": "order"})


class IndexedRules:
    """Rules in slots, and the indexes of them."""

    def __init__(self, *conditions):
        self.rules = []
        self.indexes = Indexes(self.rules)
        for condition in conditions:
            self.put(len(self.rules), condition)

    def put(self, slot, condition):
        if slot == len(self.rules):
            self.rules.append(None)
        self.rules[slot] = rule(str(slot), condition)
        self.indexes.put(slot)

    def remove(self, slot):
        self.indexes.remove(slot)
        self.rules[slot] = None

    def unindexed(self, condition):
        return self.indexes.unindexed(compiled(condition)[0].key)


def pairs(indexed, rows):
    """Returns candidates as sorted triples of row, slot and operand."""
    return sorted(
        triple
        for candidates in indexed.indexes.candidates(rows)
        for triple in zip(
            candidates.rows.tolist(),
            candidates.slots.tolist(),
            candidates.operands.tolist(),
            strict=True,
        )
    )


@pytest.mark.parametrize(
    ("condition", "operand"),
    [("kind = 'view' AND user = 17", 1), ("user = 17 AND kind = 'view'", 0)],
)
def test_a_rule_is_looked_up_by_its_rarest_value(condition, operand):
    assert pairs(IndexedRules(condition), VIEWS) == [(17, 0, operand)]


def test_the_share_of_a_list_is_that_of_all_its_values():
    kinds = clicks(*({"kind": "abcd"[n % 4], "user": min(n % 10, 3)} for n in range(100)))
    rules = IndexedRules("kind IN ('a', 'b', 'c') AND user = 3")
    rules_of_one = IndexedRules("kind = 'a' AND user = 3")
    assert {operand for _, _, operand in pairs(rules, kinds)} == {1}
    assert {operand for _, _, operand in pairs(rules_of_one, kinds)} == {0}


def test_a_rule_is_looked_up_by_another_value_when_frequencies_change():
    rules = IndexedRules("kind = 'view' AND user = 17")
    rules.indexes.rounds_between_looks = 3
    orders = clicks(*({"user": 17, "kind": "order"} for _ in range(99)), {"kind": "view"})
    assert len(pairs(rules, VIEWS)) == 1
    of_rounds = [pairs(rules, orders) for _ in range(3)]
    assert [len(of_round) for of_round in of_rounds] == [99, 99, 1]
    assert of_rounds[-1] == [(99, 0, 0)]


def test_a_value_that_is_slowly_more_frequent_is_noticed():
    rules = IndexedRules("kind = 'view' AND user = 17")
    rules.indexes.rounds_between_looks = 1
    for count in (2, 3, 5, 8, 12, 20, 30, 50, 80):
        some = [{"user": 17, "kind": "order"}] * count
        rest = [
            {"user": n, "kind": "view" if n < 120 else "order"} for n in range(100, 200 - count)
        ]
        operands = {operand for _, _, operand in pairs(rules, clicks(*some, *rest))}
    assert operands == {0}


def test_few_rows_leave_no_more_values_frequent_than_are_possible_at_once():
    users = compiled("user = 1")[0].indexed[0]
    frequent = {}
    for first in range(0, 2_000, 2):
        rows = clicks(*({"user": first + n % 2} for n in range(8)))
        frequent = EncodedValues.of(users, rows).frequent(frequent)
    assert len(frequent) == 2 / FREQUENT_SHARE
    assert set(frequent) == set(range(1_600, 2_000))


def test_a_frequent_value_stays_so_while_few_rows_have_others():
    users = compiled("user = 1")[0].indexed[0]
    frequent = {}
    for other in range(1_000):
        rows = clicks(*({"user": -1 if other % 50 == 0 else other} for _ in range(8)))
        frequent = EncodedValues.of(users, rows).frequent(frequent)
        assert -1 in frequent


def test_two_equalities_of_one_field_are_placed_anew():
    rules = IndexedRules("user = 17 AND user IN (17, 18)")
    rules.indexes.rounds_between_looks = 1
    assert pairs(rules, clicks({"user": 1})) == []
    assert len(pairs(rules, clicks({"user": 17}, {"user": 18}))) == 1


def test_a_new_rule_is_placed_by_the_events_of_its_first_batch():
    rules = IndexedRules("kind = 'order'")
    assert pairs(rules, clicks({})) == []
    rules.put(1, "kind = 'view' AND user = 17")
    assert pairs(rules, VIEWS) == [(17, 1, 1), (99, 0, 0)]


def test_a_rule_that_is_removed_has_no_candidates():
    rules = IndexedRules("user = 1", "user = 1", "price > 3")
    rows = clicks({"user": 1})
    assert pairs(rules, rows) == [(0, 0, 0), (0, 1, 0)]
    rules.remove(0)
    assert pairs(rules, rows) == [(0, 1, 0)]
    rules.remove(1)
    rules.remove(2)
    assert pairs(rules, rows) == []
    assert not rules.unindexed("price > 3")


def test_a_rule_that_is_removed_before_its_first_batch_has_no_candidates():
    rules = IndexedRules("user = 1")
    rules.remove(0)
    assert pairs(rules, clicks({"user": 1})) == []


def test_a_slot_is_used_again():
    rules = IndexedRules("user = 1")
    pairs(rules, clicks({}))
    rules.remove(0)
    rules.put(0, "is_new = TRUE AND kind = 'a'")
    rows = clicks({"user": 1}, {"is_new": True, "kind": "a"})
    assert [(row, slot) for row, slot, _ in pairs(rules, rows)] == [(1, 0)]


def test_a_row_is_a_candidate_once_for_each_list():
    rules = IndexedRules("user IN (1, 2, 2, 3)", "user IN (2, 4)")
    rows = clicks({"user": 2}, {"user": 4}, {"user": 5})
    assert pairs(rules, rows) == [(0, 0, 0), (0, 1, 0), (1, 1, 0)]


@pytest.mark.parametrize(
    ("condition", "row"),
    [
        ("price = 0", {"price": -0.0}),
        ("price = -0.0", {"price": 0.0}),
        ("price = 2", {"price": 2.0}),
        ("user = 2.0", {"user": 2}),
        ("is_new = FALSE", {"is_new": False}),
        ("at = '2026-05-01T02:00:00+02:00'", {"at": datetime(2026, 5, 1, tzinfo=UTC)}),
        ("lower(kind) = 'é'", {"kind": "É"}),
    ],
)
def test_equal_values_are_found_in_the_index(condition, row):
    assert pairs(IndexedRules(condition), clicks(row)) == [(0, 0, 0)]


@pytest.mark.parametrize("condition", ["country = 'PL'", "country IN ('PL')", "price = 0"])
def test_null_equals_nothing(condition):
    assert pairs(IndexedRules(condition), clicks({})) == []


@pytest.mark.parametrize("condition", ["user IN (1.5)", "user = 1.5"])
def test_a_value_that_no_event_can_have_has_no_candidates(condition):
    assert pairs(IndexedRules(condition), clicks({"user": 1}, {"user": 2})) == []


@pytest.mark.parametrize("condition", ["price > 3", "TRUE", "user = 1 OR user = 2", "is_new"])
def test_a_rule_without_an_equality_is_in_no_index(condition):
    rules = IndexedRules(condition)
    assert pairs(rules, clicks({"user": 1, "is_new": True, "price": 4.0})) == []
    assert rules.unindexed(condition) == {0}


def test_a_batch_without_rows_has_no_candidates():
    rules = IndexedRules("user = 1", "price > 2")
    assert pairs(rules, clicks()) == []
    assert pairs(rules, clicks({"user": 1})) == [(0, 0, 0)]


def test_candidates_of_many_rules_are_those_of_each():
    random = np.random.default_rng(5)
    rows = clicks(*({"user": int(user)} for user in random.integers(0, 20, 200)))
    asked = random.integers(0, 20, 50).tolist()
    rules = IndexedRules(*(f"user = {user}" for user in asked))
    users = rows["user"].to_pylist()
    expected = [
        (row, slot, 0)
        for row, user in enumerate(users)
        for slot, value in enumerate(asked)
        if user == value
    ]
    assert pairs(rules, rows) == expected
