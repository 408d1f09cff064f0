"""A rule is looked up by the value that fewest events have, as observed."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from tests.unit.queries.match.clicks import clicks, compiled

from headrace.queries.match import index as index_module
from headrace.queries.match.index import Indexes

VIEWS = clicks(*({"user": number, "kind": "view"} for number in range(99)), {"kind": "order"})


def indexes(*conditions):
    """Returns indexes with a rule for each condition, in slots from 0 on."""
    made = Indexes()
    for slot, condition in enumerate(conditions):
        made.put(slot, *compiled(condition))
    return made


def pairs(made, rows):
    """Returns candidates as sorted triples of row, slot and operand."""
    return sorted(
        triple
        for candidates in made.candidates(rows)
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
    assert pairs(indexes(condition), VIEWS) == [(17, 0, operand)]


def test_the_share_of_a_list_is_that_of_all_its_values():
    kinds = clicks(*({"kind": "abcd"[n % 4], "user": min(n % 10, 3)} for n in range(100)))
    made = indexes("kind IN ('a', 'b', 'c') AND user = 3")
    made_of_one = indexes("kind = 'a' AND user = 3")
    assert {operand for _, _, operand in pairs(made, kinds)} == {1}
    assert {operand for _, _, operand in pairs(made_of_one, kinds)} == {0}


def test_a_rule_is_looked_up_by_another_value_when_frequencies_change(monkeypatch):
    monkeypatch.setattr(index_module, "_ROUNDS_BETWEEN_LOOKS", 3)
    made = indexes("kind = 'view' AND user = 17")
    orders = clicks(*({"user": 17, "kind": "order"} for _ in range(99)), {"kind": "view"})
    assert len(pairs(made, VIEWS)) == 1
    of_rounds = [pairs(made, orders) for _ in range(3)]
    assert [len(of_round) for of_round in of_rounds] == [99, 99, 1]
    assert of_rounds[-1] == [(99, 0, 0)]


def test_a_value_that_is_slowly_more_frequent_is_noticed(monkeypatch):
    monkeypatch.setattr(index_module, "_ROUNDS_BETWEEN_LOOKS", 1)
    made = indexes("kind = 'view' AND user = 17")
    for count in (2, 3, 5, 8, 12, 20, 30, 50, 80):
        some = [{"user": 17, "kind": "order"}] * count
        rest = [{"user": n, "kind": "view" if n < 20 else "order"} for n in range(100, 200 - count)]
        operands = {operand for _, _, operand in pairs(made, clicks(*some, *rest))}
    assert operands == {0}


def test_two_equalities_of_one_field_are_placed_anew(monkeypatch):
    monkeypatch.setattr(index_module, "_ROUNDS_BETWEEN_LOOKS", 1)
    made = indexes("user = 17 AND user IN (17, 18)")
    assert pairs(made, clicks({"user": 1})) == []
    assert len(pairs(made, clicks({"user": 17}, {"user": 18}))) == 1


def test_a_new_rule_is_placed_by_the_events_of_its_first_batch():
    made = indexes("kind = 'order'")
    assert pairs(made, clicks({})) == []
    made.put(1, *compiled("kind = 'view' AND user = 17"))
    assert pairs(made, VIEWS) == [(17, 1, 1), (99, 0, 0)]


def test_a_rule_that_is_removed_has_no_candidates():
    made = indexes("user = 1", "user = 1", "price > 3")
    rows = clicks({"user": 1})
    assert pairs(made, rows) == [(0, 0, 0), (0, 1, 0)]
    made.remove(0)
    assert pairs(made, rows) == [(0, 1, 0)]
    made.remove(1)
    made.remove(2)
    assert pairs(made, rows) == []
    assert not made.unindexed(compiled("price > 3")[0].key)


def test_a_rule_that_is_removed_before_its_first_batch_has_no_candidates():
    made = indexes("user = 1")
    made.remove(0)
    assert pairs(made, clicks({"user": 1})) == []


def test_a_slot_is_used_again():
    made = indexes("user = 1")
    pairs(made, clicks({}))
    made.remove(0)
    made.put(0, *compiled("is_new = TRUE AND kind = 'a'"))
    rows = clicks({"user": 1}, {"is_new": True, "kind": "a"})
    assert [(row, slot) for row, slot, _ in pairs(made, rows)] == [(1, 0)]


def test_a_row_is_a_candidate_once_for_each_list():
    made = indexes("user IN (1, 2, 2, 3)", "user IN (2, 4)")
    rows = clicks({"user": 2}, {"user": 4}, {"user": 5})
    assert pairs(made, rows) == [(0, 0, 0), (0, 1, 0), (1, 1, 0)]


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
    assert pairs(indexes(condition), clicks(row)) == [(0, 0, 0)]


@pytest.mark.parametrize("condition", ["country = 'PL'", "country IN ('PL')", "price = 0"])
def test_null_equals_nothing(condition):
    assert pairs(indexes(condition), clicks({})) == []


@pytest.mark.parametrize("condition", ["user IN (1.5)", "user = 1.5"])
def test_a_value_that_no_event_can_have_has_no_candidates(condition):
    assert pairs(indexes(condition), clicks({"user": 1}, {"user": 2})) == []


@pytest.mark.parametrize("condition", ["price > 3", "TRUE", "user = 1 OR user = 2", "is_new"])
def test_a_rule_without_an_equality_is_in_no_index(condition):
    made = indexes(condition)
    assert pairs(made, clicks({"user": 1, "is_new": True, "price": 4.0})) == []
    assert made.unindexed(compiled(condition)[0].key) == {0}


def test_a_batch_without_rows_has_no_candidates():
    made = indexes("user = 1", "price > 2")
    assert pairs(made, clicks()) == []
    assert pairs(made, clicks({"user": 1})) == [(0, 0, 0)]


def test_candidates_of_many_rules_are_those_of_each(monkeypatch):
    random = np.random.default_rng(5)
    rows = clicks(*({"user": int(user)} for user in random.integers(0, 20, 200)))
    asked = random.integers(0, 20, 50).tolist()
    made = indexes(*(f"user = {user}" for user in asked))
    users = rows["user"].to_pylist()
    expected = [
        (row, slot, 0)
        for row, user in enumerate(users)
        for slot, value in enumerate(asked)
        if user == value
    ]
    assert pairs(made, rows) == expected
