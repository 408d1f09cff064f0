"""Expressions on columns of Spark mean what they mean on columns of Arrow."""

from __future__ import annotations

import sys
from itertools import chain

import pytest
from hypothesis import strategies as st
from pyspark.sql import functions as f
from tests.integration.visits import (
    BIG_INTEGERS,
    EVENT,
    EVENTS,
    compiled,
    condition,
    decoded,
    events_of,
    generated,
    json_text,
    plain,
)
from tests.unit.queries.compile.arrow.expressions import (
    EXPRESSIONS,
    VISITS,
    comparisons,
    literals,
    paths,
    with_other_constants,
)

from headrace.queries.compile.spark import ConstantLayout, column_of
from headrace.queries.language.clauses import print_expression
from headrace.queries.language.tree import FunctionCall, Like, Path

pytestmark = pytest.mark.usefixtures("without_call_sites")

BIG_COMPARISONS = comparisons(
    paths("views", "position", "price", "owner.height", "owner.age"),
    literals(BIG_INTEGERS | BIG_INTEGERS.map(float)),
)
ANY_EXPRESSIONS = EXPRESSIONS | BIG_COMPARISONS
COLUMNS_AT_ONCE = 80  # of more, Spark generates no code for the whole stage


def values_of(events, columns):
    """The values of columns: a list of each."""
    values = []
    for begin in range(0, len(columns), COLUMNS_AT_ONCE):
        some = columns[begin : begin + COLUMNS_AT_ONCE]
        named = [column.alias(f"c{number}") for number, column in enumerate(some)]
        table = events.select("row", *named).toArrow().sort_by("row")
        values += [plain(column) for column in table.columns[1:]]
    return values


def assert_equal(expressions, texts, actual, expected):
    """All values are equal; otherwise the shortest expression is shown."""
    different = [
        (print_expression(expression), texts[row], pair)
        for expression, *columns in zip(expressions, actual, expected, strict=True)
        for row, pair in enumerate(zip(*columns, strict=True))
        if repr(pair[0]) != repr(pair[1])  # -0.0 is another number than 0.0
    ]
    assert not different, min(different, key=lambda case: len(str(case)))


def assert_values_are_those_of_arrow(spark, expressions, texts):
    """Evaluates expressions on events of JSON texts; returns all values."""
    columns = [column_of(each, VISITS, f.col("event")) for each in expressions]
    actual = values_of(events_of(spark, texts).cache(), columns)
    rows = decoded(texts)
    expected = [plain(compiled(each).evaluate(rows)) for each in expressions]
    assert_equal(expressions, texts, actual, expected)
    return list(chain.from_iterable(expected))


@pytest.mark.usefixtures("ansi")
def test_values_are_those_of_arrow(spark):
    texts = [json_text(event) for event in generated(EVENTS, 60)]
    expressions = list(dict.fromkeys(generated(ANY_EXPRESSIONS, 320)))
    values = assert_values_are_those_of_arrow(spark, expressions, texts)
    assert {type(value) for value in values} == {bool, int, float, str, type(None)}


CALCULATIONS = [
    *("price * 1e308 * 1e308", "-1e308 - 1e308", "price * 1e308 * 1e308 - price * 1e308 * 1e308"),
    *("1 / (price * 1e308 * 1e308)", "views / 0", "0 / (price - price)", "1 / -0.0", "-views + 3"),
    *("floor(price * 1e300)", "ceil(-price / 5)", "floor(-5e-324)", "ceil(5e-324)", "abs(-price)"),
    *("9223372036854775807 + views", "floor(9.3e18 + price)", "abs(price * 1e308 * 1e308)"),
]


def test_numbers_that_are_not_finite_are_null(spark):
    comparisons = [f"{text} {order} 1" for text in CALCULATIONS for order in ("=", "!=", "<", ">")]
    nulls = [f"{text} IS NULL" for text in CALCULATIONS]
    ranges = [f"{text} IN (0, 1) OR {text} BETWEEN 0 AND 1" for text in CALCULATIONS]
    texts = [json_text(EVENT), json_text(EVENT | {"price": 1e300}), json_text(EVENT | {"price": 0})]
    expressions = [condition(text) for text in [*comparisons, *nulls, *ranges]]
    assert_values_are_those_of_arrow(spark, expressions, texts)


@st.composite
def rules(draw):
    """Three expressions of one shape, with constants."""
    expression = draw(ANY_EXPRESSIONS.filter(lambda each: compiled(each).constants))
    shape = compiled(expression).shape
    others = with_other_constants(expression).filter(lambda each: compiled(each).shape == shape)
    return [expression, draw(others), draw(others)]


def test_a_column_serves_all_constants_of_a_shape(spark):
    texts = [json_text(event) for event in generated(EVENTS, 30)]
    shapes = generated(rules(), 120)
    columns, structs = [], []
    for number, shape in enumerate(shapes):
        layout = ConstantLayout(compiled(shape[0]).constant_types)
        structs.append([layout.values(compiled(each).constants) for each in shape])
        constants = layout.columns(f.get("constants", f.lit(number)))
        columns.append(column_of(shape[0], VISITS, f.col("event"), constants))
    rule_of_row = [row % 3 for row in range(len(texts))]
    constants_of_row = [[of_shape[rule] for of_shape in structs] for rule in rule_of_row]

    actual = values_of(events_of(spark, texts, constants_of_row).cache(), columns)

    rows = decoded(texts)
    expected = []
    for shape in shapes:
        values = [plain(compiled(each).evaluate(rows)) for each in shape]
        expected.append([values[rule][row] for row, rule in enumerate(rule_of_row)])
    assert_equal([shape[0] for shape in shapes], texts, actual, expected)


def test_every_character_has_the_case_that_it_has_in_arrow(spark):
    characters = [chr(i) for i in range(sys.maxunicode + 1) if not 0xD800 <= i < 0xE000]
    some = ["".join(characters[i : i + 500]) for i in range(0, len(characters), 500)]
    texts = [json_text(EVENT | {"title": text}) for text in some]
    title = Path(("title",))
    lower, upper = FunctionCall("lower", (title,)), FunctionCall("upper", (title,))
    expressions = [lower, upper, FunctionCall("upper", (lower,)), FunctionCall("lower", (upper,))]
    assert_values_are_those_of_arrow(spark, expressions, texts)


PATTERNS = [
    *("men", "m%", "%n", "%e%", "%", "", "_", "__", "_e_", "m_%", "%_n", "m%n", "%m%n%", "%e%e%"),
    *("a_b", "a\\%b", "a\\_b", "\\m\\e\\n", "%\\\\", "\\%%", "a.c", "(a|b)*[c]", "%\\E%", "\\Q%"),
    *("%a_a%", "%a%a_", "_%_%_", "%%__%%", "😀%", "%é", "a\nb", "a_b%", "%ab", "%a%ab", "ab%ba"),
]
LIKE_TEXTS = [
    *("", "m", "men", "meen", "n", "me", "a%b", "a_b", "axb", "a\nb", "a\\", "\\", "%", "a.c"),
    *("abc", "(a|b)*[c]", "\\E", "\\Q", "\\Qx", "aba", "abaa", "aaxa", "😀", "😀é", "é", "ab\n"),
    *("aab", "ab"),
]


def test_patterns_match_what_they_match_in_arrow(spark):
    texts = [json_text(EVENT | {"title": text}) for text in LIKE_TEXTS]
    expressions = [Like(Path(("title",)), pattern) for pattern in PATTERNS]
    assert_values_are_those_of_arrow(spark, expressions, texts)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 28 + "price" + " * 1.01)" * 28 + " > 3",
        "floor(" * 14 + "price" + " * 1.5)" * 14 + " > 100",
        "(" * 28 + "views = 3" + " = (price + 1 > 2))" * 28,
        " OR ".join(f"views = {number}" for number in range(4, -700, -1)),
        f"country IN ({', '.join(map(repr, map(str, range(999))))}, 'PL')",
        "lower(upper(" * 14 + "title" + "))" * 14 + " = 'a'",
        "title NOT LIKE '" + "a_" * 9_000 + "'",
        "title NOT LIKE '" + "%a" * 99 + "%b'",
    ],
    ids=lambda text: text[:20],
)
def test_the_largest_conditions_are_evaluated(spark, text):
    texts = [json_text(EVENT), json_text(EVENT | {"title": "a" * 18_000})]
    assert_values_are_those_of_arrow(spark, [condition(text)], texts)
