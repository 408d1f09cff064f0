"""Texts of queries, and their trees."""

from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlglot import Tokenizer

from headrace.errors import QueryTextError
from headrace.queries.language import parse_query, print_query
from headrace.queries.language.clauses import Clause, clause_texts
from headrace.queries.language.tree import (
    Aggregate,
    And,
    Arithmetic,
    Between,
    ClosedBy,
    Closing,
    Comparison,
    Facet,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Path,
    Query,
    Result,
)
from headrace.queries.language.words import MAX_CHARACTERS, MAX_DEPTH, QueryText

A, PRICE = Path(("a",)), Path(("price",))
COUNT = (Result(Aggregate("count")),)
PREFIX = "SELECT count(*) FROM t WHERE "


def where(text):
    return parse_query(PREFIX + text).where


def refusal(text):
    with pytest.raises(QueryTextError) as raised:
        parse_query(text)
    return raised.value


def test_a_query_with_all_clauses():
    text = """
        SELECT count(*), average(price) AS mean, percentile(price, 99.9),
               filter(sum(price), WHERE price > 3), rate(count(*), 1 second)
        FROM impressions
        WHERE campaign = 'men' AND position IN (1, 2)
        FACET item_id, repo.owner AS "the owner"
        LIMIT 20
        WINDOW 1 minute
        SLIDE BY 10 seconds
        ALLOWED LATENESS 1 hour
        CLOSE BY QUIET TIME 30 seconds
        EMIT EARLY EVERY 5 seconds
        EMPTY WINDOWS EMIT
        MATCHED EVENTS EMIT
        LOSS OF SIGNAL AFTER 3 WINDOWS
    """
    assert parse_query(text) == Query(
        (
            *COUNT,
            Result(Aggregate("average", PRICE), "mean"),
            Result(Aggregate("percentile", PRICE, (99.9,))),
            Result(Aggregate("sum", PRICE, where=Comparison(">", PRICE, Literal(3)))),
            Result(Aggregate("count", per=timedelta(seconds=1))),
        ),
        "impressions",
        And(
            (
                Comparison("=", Path(("campaign",)), Literal("men")),
                In(Path(("position",)), (Literal(1), Literal(2))),
            )
        ),
        (Facet(Path(("item_id",))), Facet(Path(("repo", "owner")), "the owner")),
        max_groups=20,
        window=timedelta(minutes=1),
        slide=timedelta(seconds=10),
        allowed_lateness=timedelta(hours=1),
        closing=Closing(ClosedBy.QUIET_TIME, timedelta(seconds=30)),
        early=timedelta(seconds=5),
        emits_empty=True,
        emits_events=True,
        loss_after=3,
    )


def test_what_is_not_said_is_a_tumbling_window_of_a_minute_that_event_time_closes():
    assert parse_query("select count(*) from t") == Query(COUNT, "t")
    assert parse_query("SELECT count(*) FROM t WINDOW 2 hours").slide == timedelta(hours=2)


def test_clauses_after_from_stand_in_any_order_and_words_in_any_case():
    ordered = (
        "SELECT Count(*) FROM t WHERE a=1 FACET b WINDOW 1 minute EMPTY WINDOWS SKIP EMIT FINAL"
    )
    mixed = "select COUNT(*) from t emit final empty windows skip window 1 Minute facet b where a=1"
    assert parse_query(ordered) == parse_query(mixed)


NAMES = ("SELECT", "EMIT", "EMIT DELAYED BY", "LIMIT", "LIMIT OF LOST WINDOWS", "LOST WINDOWS")


@given(st.lists(st.sampled_from(NAMES), min_size=1))
def test_of_clauses_with_one_first_word_a_text_has_the_longest(names):
    last = {"LOST WINDOWS": ("EMIT", "LIMIT")}
    clauses = [
        Clause(tuple(name.split()), "", _nothing, _nothing, last.get(name, ())) for name in NAMES
    ]
    words = QueryText(" ".join(f"{name.lower()} (x, emit) 1" for name in names)).words()
    assert [clause.name for clause, _ in clause_texts(words, clauses)] == names


@pytest.mark.parametrize("end", ["EMIT", "LIMIT"])
def test_the_last_word_of_a_clause_begins_no_other_clause(end):
    clauses = [
        Clause(("LOST", "WINDOWS"), "", _nothing, _nothing, last=("EMIT", "LIMIT")),
        *(Clause(tuple(name.split()), "", _nothing, _nothing) for name in ("EMIT", "LIMIT")),
    ]
    words = QueryText(f"LOST WINDOWS {end} EMIT FINAL").words()
    (_, lost), (_, emit) = clause_texts(words, clauses)
    assert [word.text for word in lost.words] == [end]
    assert (emit.name, [word.text for word in emit.words]) == ("EMIT", ["FINAL"])


def _nothing(*_):
    return None


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1 OR b = 2 AND c = 3", Or((where("a = 1"), where("b = 2 AND c = 3")))),
        ("a = 1 AND (b = 2 AND c = 3)", where("a = 1 AND b = 2 AND c = 3")),
        ("NOT a = 1", Not(where("a = 1"))),
        ("a NOT IN (1)", Not(In(A, (Literal(1),)))),
        ("a IS NOT NULL", Not(IsNull(A))),
        ("a NOT LIKE 'x%'", Not(Like(A, "x%"))),
        ("a BETWEEN 1 AND 2 AND b", And((Between(A, Literal(1), Literal(2)), Path(("b",))))),
        ("a <> 1", where("a != 1")),
        ("a == 1", where("a = 1")),
        ("!a", where("NOT a")),
        ("a ISNULL", where("a IS NULL")),
        ("a NOTNULL", where("a IS NOT NULL")),
        ("a NOT BETWEEN 1 AND 2", where("NOT (a BETWEEN 1 AND 2)")),
        ("a = +b + + 1", where("a = b + 1")),
        ("a = -9223372036854775808", Comparison("=", Path(("a",)), Literal(-(2**63)))),
        ("a = -3", Comparison("=", A, Literal(-3))),
        ("a = 1e3", Comparison("=", A, Literal(1000.0))),
        ("a = TRUE", Comparison("=", A, Literal(True))),
        ("a = 'it''s'", Comparison("=", A, Literal("it's"))),
        (
            "a + 2 * b > 1",
            Comparison(
                ">", Arithmetic("+", A, Arithmetic("*", Literal(2), Path(("b",)))), Literal(1)
            ),
        ),
        ('"from"."x y" IS NULL', IsNull(Path(("from", "x y")))),
        ("a.b.c.d.e.f IS NULL", IsNull(Path(tuple("abcdef")))),
    ],
)
def test_conditions(text, tree):
    assert where(text) == tree


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("", 1, 1, "begins with SELECT"),
        ("SELECT count(*)", 1, 16, "FROM and the name of a topic"),
        ("SELECT count(*) FROM", 1, 21, "name of one topic"),
        ("SELECT FROM t", 1, 7, "an aggregate is expected"),
        ("SELECT price FROM t", 1, 8, "an aggregate is expected"),
        ("SELECT count(*) + 1 FROM t", 1, 8, "an aggregate is expected"),
        ("SELECT cuont(*) FROM t", 1, 8, "did you mean 'count'"),
        ("SELECT sum(*) FROM t", 1, 12, "sum needs a value"),
        ("SELECT percentile(a) FROM t", 1, 8, "takes 2 arguments, as in percentile(a, 95)"),
        ("SELECT histogram(a, 5) FROM t", 1, 8, "4 arguments, as in histogram(a, 0, 10, 20)"),
        ("SELECT sum() FROM t", 1, 8, "sum takes 1 argument, as in sum(price)"),
        ("SELECT count(*) FROM t WHERE a = 1\nGROUP BY b", 2, 1, "FACET in place of GROUP BY"),
        ("SELECT count(*) FROM t group  by b", 1, 24, "FACET in place of GROUP BY"),
        ("SELECT count(*) FROM t order by b", 1, 24, "leave ORDER BY out"),
        ("SELECT count(*) FROM t WHERE a IN ('x', \"it's\")", 1, 41, "write 'it''s'"),
        ('SELECT count(*) FROM t WHERE a LIKE "x%"', 1, 37, "write 'x%'"),
        ("SELECT percentile(a, 'x') FROM t", 1, 22, "a number is expected"),
        ("SELECT rate(max(a), 1 second) FROM t", 1, 8, "only count and sum have a rate"),
        ("SELECT filter(count(*)) FROM t", 1, 8, "filter is used as in"),
        ('SELECT count(*) AS "" FROM t', 1, 20, "AS is followed by a name"),
        ("SELECT count(*) AS a$b FROM t", 1, 20, "AS is followed by a name"),
        ("SELECT count(*) AS FROM t", 1, 19, "AS is followed by a name"),
        ("SELECT count(*) FROM t, u", 1, 22, "name of one topic"),
        ("SELECT count(*) FROM 't'", 1, 22, "name of one topic"),
        ("SELECT count(*) FROM t)", 1, 22, "name of one topic"),
        ("SELECT count(*) FROM t N'where' a=1", 1, 24, "without a letter before"),
        ('SELECT "count"(*) FROM t', 1, 8, "an aggregate is expected"),
        ("SELECT count(*) FROM t LIMIT '20'", 1, 30, "a whole number"),
        ("SELECT count(*) FROM t WHERE", 1, 29, "an expression is missing"),
        ("SELECT count(*)\nFROM t\nWHERE a = lowr(b)", 3, 11, "did you mean 'lower'"),
        ("SELECT count(*) FROM t WHERE sum(a) > 3", 1, 30, "'sum' is an aggregate"),
        ("SELECT count(DISTINCT a) FROM t", 1, 14, "write uniqueCount(x)"),
        ("SELECT count(*) FROM t WHERE a = = 3", 1, 34, "not valid near '='"),
        ("SELECT count(*) FROM t WHERE a =\n  b AND AND c", 2, 9, "not valid near 'AND'"),
        ("SELECT count(*) FROM t WHERE a IN (b)", 1, 30, "constants in brackets"),
        ("SELECT count(*) FROM t WHERE a = NULL", 1, 30, "NULL, but in IS NULL"),
        ("SELECT count(*) FROM t WHERE a IS TRUE", 1, 30, "NULL or NOT NULL"),
        ("SELECT count(*) FROM t WHERE a = 9223372036854775808", 1, 34, "64 bits"),
        ("SELECT count(*) FROM t WHERE a = -9223372036854775809", 1, 35, "64 bits"),
        ("SELECT count(*) FROM t WHERE a = -(9223372036854775808)", 1, 36, "64 bits"),
        ("SELECT count(*) FROM t WHERE a = 1e999", 1, 34, "too large"),
        ("SELECT count(*) FROM t WHERE a WHERE b", 1, 32, "WHERE stands twice"),
        ("SELECT count(*) FROM t WINDOW soon", 1, 31, "a duration is expected"),
        ("SELECT count(*) FROM t WINDOW 1.5 minutes", 1, 31, "a duration is expected"),
        ("SELECT count(*) FROM t CLOSE BY hand", 1, 33, "CLOSE BY is followed by"),
        ("SELECT count(*) FROM t EMIT LATE", 1, 29, "EMIT is followed by"),
        ("SELECT count(*) FROM t EMPTY WINDOWS", 1, 37, "EMIT or SKIP"),
        ("SELECT count(*) FROM t WINDOW 1 minute FOO 2", 1, 40, "no clause begins with FOO"),
        ("SELECT count(*) FROM t HAVING count(*) > 3", 1, 24, "no clause begins with HAVING"),
        (
            "SELECT count(*) FROM t MATCHED EVENTS FINAL",
            1,
            39,
            "MATCHED EVENTS is followed by EMIT",
        ),
        ("SELECT count(*) FROM t LOSS OF SIGNAL AFTER 3", 1, 45, "a number of WINDOWS"),
        ("SELECT count(*) FROM t LIMIT -1", 1, 30, "a whole number"),
        ("SELECT count(*) FROM t WHERE a = 'x", 1, 36, "not closed"),
    ],
)
def test_a_text_that_is_no_query_is_refused_with_the_place_and_the_reason(
    text, line, column, reason
):
    error = refusal(text)
    assert (error.line, error.column) == (line, column), error
    assert reason in error.reason


ESCAPES = """
reflect('java.lang.Runtime', 'exec', 'id') = 1
java_method('java.lang.System', 'exit', 1) = 1
try_reflect('java.lang.System', 'getenv') = 'x'
a = (SELECT 1)
a IN (SELECT b FROM u)
EXISTS (SELECT 1)
a = ANY (SELECT 1)
a = ALL (ARRAY[1])
a IN UNNEST(b)
a = 1; DROP TABLE t
a = 1 UNION SELECT 2
a = 1 -- and more
a = 1 /* and more */
a = /*+ BROADCAST(u) */ 1
a = 1 # and more
a::int = 1
CAST(a AS int) = 1
TRY_CAST(a AS int) = 1
CASE WHEN a = 1 THEN TRUE END
IF(a, b, c)
a[0] = 1
a['b'] = 1
a[1:2] = 1
{'a': 1} = a
[1, 2] = a
ARRAY[1] = a
STRUCT(1) = a
MAP(1, 2) = a
x -> x + 1
transform(a, x -> x + 1) = b
a => 1
a := 1
@a = 1
$1 = a
:a = 1
? = a
%s = a
{{ a }} = 1
${a} = 1
`a` = 1
parquet.`/etc/passwd` = 1
a = b'x'
a = x'41'
a = N'x'
a = r'x'
a = $$x$$
a = DATE '2026-01-01'
a = INTERVAL 1 DAY
a = CURRENT_TIMESTAMP()
a = USER()
a AT TIME ZONE 'UTC' = b
a COLLATE nocase = 'x'
a RLIKE '(a+)+$'
a REGEXP '(a+)+$'
a SIMILAR TO 'x'
a ILIKE 'x'
a LIKE 'x' ESCAPE '!'
a LIKE b
a <=> b
a IS DISTINCT FROM b
a || b = 'x'
a & 1 = 1
a | 1 = 1
a ^ 1 = 1
a << 1 = 2
~a = 1
a % 2 = 0
a ** 2 = 4
a DIV 2 = 1
repeat('a', 200000000) = a
sequence(1, 20000000) = a
input_file_name() = 'x'
spark_partition_id() = 0
rand() < 0.5
count(*) OVER () = 1
first(a) IGNORE NULLS = 1
a.* = 1
* = 1
a b
a = 1 AS b
NEXT VALUE FOR s = 1
lower(a).b = 1
reflect(b).a = 1
'x'.a = 1
(1).a = 1
NULL.a = 1
TRUE.b
?.a = 1
"lower"(a) = 'x'
date(a) = 1
DESCRIBE t
DROP TABLE t
ELSE
ELSE a
OPTIMIZE)a b OPTIMIZE)a
int[a] = 1
a->'-b' = 1
ℓower(a) = 'x'
а = 1
a ＝ 1
a = １
""".strip().splitlines()  # noqa: RUF001 - letters that look like others


@pytest.mark.parametrize("condition", ESCAPES)
def test_what_is_not_listed_is_refused(condition):
    assert refusal(PREFIX + condition).column >= len(PREFIX)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000,
        PREFIX + "(" * 9_000 + "a" + ")" * 9_000,
        PREFIX + "NOT " * 3_000 + "a",
        PREFIX + "a = " + "- " * 3_000 + "1",
        PREFIX + "lower(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1),
        PREFIX + "a = " + " + ".join(["1"] * 100),
        "SELECT " + "filter(" * 1_000,
        PREFIX + "a = " + "1 " * 5_000,
        "x" * (MAX_CHARACTERS + 1),
        PREFIX + "a IN (" + ", ".join(["1"] * 1_001) + ")",
        PREFIX + "x -> " * 1_900 + "x",
        PREFIX + "date(" * 28 + "a" + ")" * 28,
        PREFIX + "decimal(1, " * 28 + "a" + ")" * 28,
        PREFIX + "int[" * 28 + "1" + "]" * 28,
        PREFIX + "a = " + "9" * 5_000,
        PREFIX + "a = -" + "9" * 5_000 + ".5e400",
    ],
)
def test_what_is_too_large_or_too_deep_is_refused(text):
    refusal(text)


@pytest.mark.parametrize("condition", ["CALL 'x\nforged'", "a -> '-\nforged' = 1"])
def test_what_is_refused_is_not_logged(condition, caplog):
    refusal(PREFIX + condition)
    assert "forged" not in caplog.text


def test_zeros_before_a_number_are_not_counted():
    assert where("a = " + "0" * 5_000 + "1") == where("a = 1")


def test_a_long_chain_is_not_deep():
    condition = " AND ".join(f"a != {number}" for number in range(900))
    assert len(where(condition).operands) == 900


LETTERS = st.text(st.sampled_from("aA1.,*()[]'\"-+=<>% \n\\;:/éſ\0"), max_size=30)
WORDS = (
    *Tokenizer.KEYWORDS,
    *[
        "SELECT",
        "FROM",
        "WHERE",
        "FACET",
        "WINDOW",
        "count(*)",
        "(",
        ")",
        ",",
        "a",
        "1",
        "'x'",
        "AND",
        "OR",
        "NOT",
        "IN",
        "IS",
        "NULL",
        "LIKE",
        "AS",
        "filter",
        "rate",
        "EMIT",
        "EMPTY",
        "WINDOWS",
        "MATCHED",
        "EVENTS",
        "-",
        "+",
        "*",
        "=",
        ".",
        "minute",
        "CLOSE",
        "BY",
        "CASE",
        "CAST",
        "->",
        "[",
        "]",
        "{",
    ],
)
PIECES = st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join)


@given(LETTERS | PIECES.map("SELECT {}".format) | PIECES.map("SELECT count(*) FROM t {}".format))
@example(PREFIX + "\ud800")
@example(PREFIX + "a = \0")
def test_any_text_is_a_query_or_refused(text):
    try:
        query = parse_query(text)
    except QueryTextError as error:
        place = (error.line, error.column)
    else:
        place = (1, 1)
        assert parse_query(print_query(query)) == query
    assert min(place) >= 1


def test_a_name_may_be_a_word_of_sql():
    assert parse_query("SELECT count(*) AS date FROM t").results == (
        Result(Aggregate("count"), "date"),
    )
