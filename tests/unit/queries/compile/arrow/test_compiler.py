"""What expressions are on columns of events, construct by construct."""

from __future__ import annotations

import operator
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.queries.compile.arrow.expressions import ROWS, TEXTS, VISIT_COLUMNS, VISITS

from headrace.queries.compile.arrow import ARROW_TYPES, compile_expression
from headrace.queries.language import parse_query
from headrace.queries.language.functions import FUNCTIONS, ValueType
from headrace.queries.language.tree import Comparison, FunctionCall, Literal, Path

COMPARISONS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
BIG_INTEGERS = st.sampled_from(
    [
        sign * (2**power + step)
        for sign in (-1, 1)
        for power in (53, 60, 62)
        for step in range(-3, 4)
    ]
) | st.integers(-(2**63), 2**63 - 1)
BIG_NUMBERS = BIG_INTEGERS.map(float) | st.floats(allow_nan=False, allow_infinity=False)


def compiled(text):
    query = parse_query(f"SELECT count(*) FROM visits FACET {text}")
    return compile_expression(query.facets[0].expression, VISITS)


def visits(*rows):
    return pa.RecordBatch.from_pylist(list(rows), VISIT_COLUMNS)


def values(text, *rows):
    return compiled(text).evaluate(visits(*rows)).to_pylist()


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        (True, True, True, True),
        (True, False, False, True),
        (True, None, None, True),
        (False, False, False, False),
        (False, None, False, None),
        (None, None, None, None),
    ],
)
def test_logic_has_three_values(left, right, both, either):
    row = {"is_new": left, "owner": {"is_admin": right}}
    assert values("is_new AND owner.is_admin", row) == [both]
    assert values("owner.is_admin OR is_new", row) == [either]
    assert values("NOT (is_new AND owner.is_admin)", row) == [None if both is None else not both]
    assert values("is_new IS NULL", row) == [left is None]


@pytest.mark.parametrize("symbol", COMPARISONS)
def test_false_is_less_than_true_and_beside_null_it_is_not_known(symbol):
    condition = Comparison(symbol, Path(("is_new",)), Path(("owner", "is_admin")))
    pairs = [(left, right) for left in (False, True) for right in (False, True)]
    rows = [{"is_new": left, "owner": {"is_admin": right}} for left, right in pairs]
    result = compile_expression(condition, VISITS).evaluate(visits(*rows, {"is_new": True}))
    assert result.to_pylist() == [*(COMPARISONS[symbol](*pair) for pair in pairs), None]


@given(BIG_INTEGERS, BIG_NUMBERS, st.sampled_from(sorted(COMPARISONS)))
def test_integers_and_numbers_are_compared_exactly(integer, number, symbol):
    rows = visits({"views": integer, "price": number})
    integers, numbers = (Path(("views",)), Literal(integer)), (Path(("price",)), Literal(number))
    for left in integers:
        for right in numbers:
            there = compile_expression(Comparison(symbol, left, right), VISITS).evaluate(rows)
            back = compile_expression(Comparison(symbol, right, left), VISITS).evaluate(rows)
            assert there[0].as_py() == COMPARISONS[symbol](integer, number)
            assert back[0].as_py() == COMPARISONS[symbol](number, integer)


@given(BIG_INTEGERS, BIG_INTEGERS, st.sampled_from(sorted(COMPARISONS)))
def test_integers_of_64_bits_are_compared_exactly(left, right, symbol):
    condition = Comparison(symbol, Path(("views",)), Literal(right))
    result = compile_expression(condition, VISITS).evaluate(visits({"views": left}))
    assert result.to_pylist() == [COMPARISONS[symbol](left, right)]


@given(TEXTS, TEXTS)
def test_texts_are_compared_by_their_bytes(left, right):
    row = {"country": left, "title": right}
    assert values("country < title", row) == [left.encode() < right.encode()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("views + 1", 4.0),
        ("-views", -3.0),
        ("7 / 2", 3.5),
        ("price - cost", 0.25),
        ("views / (price - price)", None),
        ("(price - price) / (price - price)", None),
        ("price * 1e308 * 1e308", None),
        ("-1e308 - 1e308", None),
        ("position + 1", None),
        ("9007199254740993 + views * 0", 2.0**53),
    ],
)
def test_arithmetic_is_in_doubles_and_null_where_it_is_not_finite(text, expected):
    row = {"views": 3, "price": 1.75, "cost": Decimal("1.50"), "position": None}
    expression = compiled(text)
    assert expression.type is ValueType.NUMBER
    assert expression.evaluate(visits(row)).to_pylist() == [expected]


def test_zero_has_no_sign():
    row = {"price": -0.0, "views": 0}
    assert str(values("price", row)) == str(values("-views", row)) == "[0.0]"
    assert values("price IN (0)", row) == values("views / 1 IN (-0.0)", row) == [True]


def test_a_decimal_is_the_nearest_double():
    costs = ["0.10", "-9999999.99", "1234567.89", "0.07"]
    rows = [{"cost": Decimal(cost)} for cost in costs]
    assert values("cost", *rows) == [float(cost) for cost in costs]
    assert values("cost = 0.1", *rows) == [True, False, False, False]


@pytest.mark.parametrize("owner", [None, {"name": None}])
def test_a_path_through_null_is_null(owner):
    row = {"owner": owner}
    assert values("owner.name", row) == values("owner.name = 'a'", row) == [None]
    assert values("owner.name IS NULL", row) == [True]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("position IN (1, 2.0, 2.5)", [True, True, False, None]),
        ("position NOT IN (1, 2.5)", [False, True, True, None]),
        ("position IN (2.5)", [False, False, False, None]),
        ("position BETWEEN 2 AND 3", [False, True, True, None]),
        ("2 BETWEEN position AND 2.5", [True, True, False, None]),
        ("position BETWEEN 1.5 AND views", [False, True, False, None]),
        ("position + 0.5 IN (1.5, 9)", [True, False, False, None]),
    ],
)
def test_ranges_and_lists(condition, expected):
    rows = [{"position": position, "views": 2} for position in (1, 2, 3, None)]
    assert values(condition, *rows) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("at = '2026-05-01T12:00:00+02:00'", [True, False]),
        ("'2026-05-01T10:00:00Z' >= at", [True, False]),
        ("at IN ('2020-01-01T00:00:00Z', '2026-05-01T10:00:00.000Z')", [True, False]),
        ("at BETWEEN '2026-05-01T10:00:00Z' AND seen", [True, None]),
        ("'2026-05-01T10:00:00.0001Z' BETWEEN at AND '2026-05-01T11:00:00Z'", [True, False]),
        ("seen > at AND seen < '2026-05-01T10:00:00.002Z'", [True, None]),
        ("seen IS NULL", [False, True]),
    ],
)
def test_times_are_compared_with_texts_that_are_times(condition, expected):
    at = datetime(2026, 5, 1, 10, tzinfo=UTC)
    rows = [{"at": at, "seen": at.replace(microsecond=1_000)}, {"at": at.replace(year=2027)}]
    assert values(condition, *rows) == expected


@pytest.mark.parametrize(
    ("text", "pattern", "matches"),
    [
        ("men", "men", True),
        ("men", "me", False),
        ("men", "m%", True),
        ("men", "%e%", True),
        ("men", "_e_", True),
        ("men", "__", False),
        ("😀", "_", True),
        ("é", "__", False),
        ("a\nb", "a_b", True),
        ("a\nb\n", "a%", True),
        ("ab\n", "ab", False),
        ("50%", "50\\%", True),
        ("500", "50\\%", False),
        ("a_", "a\\_", True),
        ("ab", "\\a\\b", True),
        ("a\\", "%\\\\", True),
        ("ab", "%\\b", True),
        ("a.c", "a.c", True),
        ("abc", "a.c", False),
        ("(a|b)*[c]", "(a|b)*[c]", True),
        ("", "", True),
        ("", "%", True),
        ("x" * 19_000, "_" * 19_000, True),
    ],
)
def test_patterns(text, pattern, matches):
    assert values(f"country LIKE '{pattern}'", {"country": text}) == [matches]
    assert values(f"country NOT LIKE '{pattern}'", {"country": text}) == [not matches]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("lower(title)", "éa😀"),
        ("upper(title)", "ÉA😀"),
        ("length(title)", 3),
        ("startsWith(title, 'é')", True),
        ("endsWith(title, 'é')", False),
        ("contains(title, 'A')", True),
        ("abs(price)", 1.5),
        ("floor(price)", -2.0),
        ("ceil(price)", -1.0),
        ("abs(views)", 4.0),
    ],
)
def test_functions(call, expected):
    expression = compiled(call)
    row = {"title": "éA😀", "price": -1.5, "views": -4}
    result = expression.evaluate(visits(row))
    assert result.to_pylist() == [expected]
    assert result.type == ARROW_TYPES[expression.type]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_null_where_an_argument_is(name):
    kinds = {ValueType.TEXT: Path(("title",)), ValueType.NUMBER: Path(("price",))}
    call = FunctionCall(name, tuple(kinds[kind] for kind in FUNCTIONS[name].arguments))
    result = compile_expression(call, VISITS).evaluate(visits({"title": None, "price": None}))
    assert result.to_pylist() == [None]
    assert result.type == ARROW_TYPES[FUNCTIONS[name].returns]


@given(st.lists(st.tuples(st.none() | st.text("abé"), st.none() | st.text("abé", max_size=3))))
def test_parts_of_texts_may_differ_from_row_to_row(pairs):
    rows = [{"title": text, "owner": {"name": part}} for text, part in pairs]
    known = [None not in pair for pair in pairs]
    for name, has_part in {
        "startsWith": str.startswith,
        "endsWith": str.endswith,
        "contains": str.__contains__,
    }.items():
        expected = [
            has_part(*pair) if valid else None for pair, valid in zip(pairs, known, strict=True)
        ]
        assert values(f"{name}(title, owner.name)", *rows) == expected


def test_parts_of_megabytes_of_texts_are_looked_for():
    texts = [("x" * (i % 97) + "needle" + "y" * 1_000) for i in range(3_000)]
    parts = ["x" * (i % 89) + "needle" for i in range(3_000)]
    rows = [{"title": text, "country": part} for text, part in zip(texts, parts, strict=True)]
    expected = [part in text for text, part in zip(texts, parts, strict=True)]
    assert set(expected) == {True, False}
    assert values("contains(title, country)", *rows) == expected


@given(ROWS)
def test_chunks_and_slices_make_no_difference(rows):
    expression = compiled("contains(title, owner.name) OR views IN (1, 2) OR price > cost")
    expected = expression.evaluate(rows)
    table = pa.Table.from_batches([rows.slice(0, 1), rows.slice(1)], VISIT_COLUMNS)
    assert expression.evaluate(table).equals(expected)
    assert expression.evaluate(rows.slice(1)).equals(expected.slice(1))
    assert expression.evaluate(VISIT_COLUMNS.empty_table()).equals(expected.slice(0, 0))


@pytest.mark.parametrize(
    "text", ["TRUE", "1 = 1.0", "abs(-1) = 1", "'a' IN ('a')", "1 < 2 OR FALSE"]
)
def test_an_expression_without_fields_has_its_value_in_each_row(text):
    assert compiled(text).columns == frozenset()
    assert values(text, {}, {}) == [True, True]
    assert values(text) == []


def test_columns_are_those_at_the_beginning_of_paths():
    assert compiled("owner.name = 'a' OR length(title) > views").columns == {
        "owner",
        "title",
        "views",
    }
