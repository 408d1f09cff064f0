"""What changes with one rule among many, and what does not."""

from __future__ import annotations

import pytest
from tests.unit.queries.match.clicks import clicks, compiled, rule

from headrace.queries.match import rules as rules_module
from headrace.queries.match.index import EncodedValues, ValueIndex
from headrace.queries.match.rules import RuleSet, ShapeTable


def count_calls(monkeypatch, owner, name):
    """Returns the list that will have the arguments of each call of a function."""
    calls, function = [], getattr(owner, name)

    def call(*arguments):
        calls.append(arguments)
        return function(*arguments)

    monkeypatch.setattr(owner, name, call)
    return calls


@pytest.fixture
def column_calls(monkeypatch):
    return count_calls(monkeypatch, rules_module, "constant_columns")


def users(count, **columns):
    return clicks(*({"user": number, "price": 5.0, **columns} for number in range(count)))


def matching(rules, rows):
    return sum(len(matches.rows) for matches in rules.matches(rows))


def rule_set(count, condition="user = {} AND price > 1"):
    rules = RuleSet()
    for number in range(count):
        rules.put(rule(f"q{number}", condition.format(number)))
    return rules


def test_few_pairs_take_the_constants_of_their_own_rules_alone(column_calls):
    rules = rule_set(100)
    assert matching(rules, users(3)) == 3
    assert [len(rows) for _, rows in column_calls] == [3]


def test_columns_of_a_shape_are_made_once_many_pairs_need_them(column_calls):
    rules = rule_set(10)
    assert [matching(rules, users(4)) for _ in range(5)] == [4] * 5
    # Of 10 rules, each batch needs 4: the third one makes columns of both operands.
    assert [len(rows) for _, rows in column_calls] == [4, 4, 10, 10]


def test_a_rule_that_is_put_leaves_the_columns_of_other_shapes(column_calls):
    rules = rule_set(5)
    assert matching(rules, users(5)) == 5
    assert len(column_calls) == 2
    rules.put(rule("other", "user = 1 AND price > 2 AND kind != 'a'"))
    assert matching(rules, users(5)) == 6
    assert all(len(rows) == 1 for _, rows in column_calls[2:])


def test_a_changed_rule_has_its_new_constants():
    rules = rule_set(5)
    assert matching(rules, users(5)) == 5
    rules.put(rule("q1", "user = 1 AND price > 9"))
    assert matching(rules, users(5)) == 4
    rules.put(rule("q5", "user = 2 AND price > 4"))
    assert matching(rules, users(5)) == 5


def test_columns_are_of_the_rules_that_are_left():
    table = ShapeTable(0, compiled("user = 1")[0])
    for slot in (7, 2, 5):
        table.put(slot, ((slot,),))
    table.remove(2)
    table.put(3, ((30,),))
    values = [table._constants(0, slots)[0].to_pylist() for slots in _slots([3], [7, 3, 7], [5])]
    assert values == [[30], [7, 30, 7], [5]]


def _slots(*lists):
    return [rules_module.np.array(slots) for slots in lists]


def test_a_shape_without_rules_is_forgotten():
    rules = rule_set(2, "lower(kind) = 'a{}'")
    assert matching(rules, users(1)) == 0
    for number in range(2):
        rules.remove(f"q{number}")
    assert not rules._tables
    assert not rules._numbered
    for known in ("_expressions", "_indexes", "_shares", "_askers"):
        assert not getattr(rules.indexes, known), known
    rules.put(rule("q", "lower(kind) = 'view'"))
    assert matching(rules, users(1)) == 1


def test_a_new_rule_alone_is_placed(monkeypatch):
    rules = rule_set(50)
    matching(rules, users(1))
    placed = count_calls(monkeypatch, ValueIndex, "add")
    rules.put(rule("new", "user = 3 AND price > 1"))
    assert matching(rules, users(4)) == 5
    assert len(placed) == 1


def test_values_are_observed_when_an_expression_is_new_and_then_in_turns(monkeypatch):
    observed = count_calls(monkeypatch, EncodedValues, "frequent")
    rules = rule_set(3)
    rules.indexes.rounds_between_looks = 4
    counts = []
    for number in range(6):
        if number == 2:
            rules.put(rule("known", "user = 7"))
        if number == 3:
            rules.put(rule("new", "kind = 'a'"))
        matching(rules, users(2))
        counts.append(len(observed))
    assert counts == [1, 1, 1, 3, 5, 5]  # there are two expressions in the end


@pytest.mark.parametrize(
    ("rows", "before", "frequent"),
    [
        (["a"] * 4, set(), {"a"}),
        (["a"] * 3, set(), set()),
        (["a"] * 4 + ["b"] * 900, set(), {"b"}),
        (["a"] * 4 + ["b"] * 900, {"a"}, {"a", "b"}),
        (["a"] * 2 + ["b"] * 900, {"a"}, {"b"}),
        (["b"] * 700, {"a"}, {"a", "b"}),
    ],
)
def test_a_value_is_frequent_until_it_has_half_the_share(rows, before, frequent):
    expression = compiled("kind = 'a'")[0].indexed[0]
    values = EncodedValues.of(expression, clicks(*({"kind": kind} for kind in rows)))
    assert values.frequent(before).keys() == frequent


def test_a_rule_without_a_choice_stays_where_it_is(monkeypatch):
    rules = rule_set(1, "user = 7")
    rules.indexes.rounds_between_looks = 1
    assert matching(rules, users(2)) == 0
    taken = count_calls(monkeypatch, ValueIndex, "remove")
    assert matching(rules, users(9, user=7)) == 9
    assert not taken


def test_a_rule_goes_back_when_its_value_is_rare_again():
    rules = rule_set(1, "user = 7 AND kind = 'view'")
    rules.indexes.rounds_between_looks = 1
    of_user_7, views = users(1_000, user=7, kind="a"), users(1_000)
    operands = []
    for rows in (views, of_user_7, views, of_user_7, views):
        matching(rules, rows)
        operands.append(int(rules.indexes._operands[0]))
    assert operands == [0, 1, 0, 1, 0]
