"""Whole queries, and events of which they have results."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st
from tests.unit.queries.compile.arrow.expressions import (
    BOOLEAN_PATHS,
    CONDITIONS,
    ORDERS,
    TIME_PATHS,
    chains,
    lists_of,
    literals,
    nullable,
    paths,
    with_other_constants,
)

from headrace.queries.language import print_query
from headrace.queries.language.tree import (
    Aggregate,
    And,
    Arithmetic,
    Comparison,
    Facet,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Query,
    Result,
)

TOPIC = "visits"
FIRST = datetime(2026, 5, 1, tzinfo=UTC)
SPAN_SECONDS = 180

# Sums of such numbers are exact in doubles, in any order.
TEXTS = st.sampled_from(["", "a", "ab", "A%", "é", "😀"])
INTEGERS = st.integers(-4, 4) | st.integers(-1_000_000, 1_000_000)
NUMBERS = st.integers(-8, 8).map(lambda number: number / 4)
TIMES = st.integers(0, SPAN_SECONDS * 4).map(lambda n: FIRST + n * timedelta(milliseconds=250))
EVENTS = st.fixed_dictionaries(
    {
        "title": nullable(TEXTS),
        "country": TEXTS,
        "position": nullable(INTEGERS),
        "views": INTEGERS,
        "price": nullable(NUMBERS),
        "cost": nullable(st.decimals(-9, 9, places=2)),
        "is_new": nullable(st.booleans()),
        "at": TIMES,
        "seen": nullable(TIMES),
        "owner": nullable(
            st.fixed_dictionaries(
                {
                    "name": nullable(TEXTS),
                    "age": nullable(INTEGERS),
                    "height": nullable(NUMBERS),
                    "is_admin": nullable(st.booleans()),
                    "since": nullable(TIMES),
                }
            )
        ),
    }
)


TEXT_PATHS = paths("title", "country", "owner.name")
NUMBER_PATHS = paths("position", "views", "price", "owner.age", "owner.height")
CALCULATED = st.builds(
    Arithmetic, st.sampled_from("+-*"), NUMBER_PATHS, literals(st.integers(-2, 2))
)
LENGTHS = TEXT_PATHS.map(lambda path: FunctionCall("length", (path,)))
NUMERIC = NUMBER_PATHS | CALCULATED | LENGTHS
VALUES = NUMERIC | TEXT_PATHS | TIME_PATHS | BOOLEAN_PATHS
EQUALITIES = st.one_of(
    st.builds(Comparison, st.just("="), TEXT_PATHS, literals(TEXTS)),
    st.builds(Comparison, st.just("="), literals(INTEGERS | NUMBERS), NUMBER_PATHS),
    st.builds(Comparison, st.just("="), BOOLEAN_PATHS, literals(st.booleans())),
    st.builds(In, TEXT_PATHS, lists_of(literals(TEXTS))),
    st.builds(In, NUMBER_PATHS, lists_of(literals(st.integers(-2, 2)))),
    st.builds(In, TIME_PATHS, lists_of(literals(TIMES.map(datetime.isoformat)))),
)
RANGES = st.one_of(
    st.builds(Comparison, ORDERS, NUMBER_PATHS, literals(st.integers(-2, 2) | NUMBERS)),
    st.builds(Comparison, ORDERS, TIME_PATHS, literals(TIMES.map(datetime.isoformat))),
    st.builds(Like, TEXT_PATHS, st.sampled_from(["%", "a%", "_", "%b", "\\%"])),
    st.builds(IsNull, VALUES),
    BOOLEAN_PATHS,
    st.just(Literal(value=True)),
)
SIMPLE = EQUALITIES | RANGES
WHERES = st.none() | EQUALITIES | SIMPLE | chains(And, SIMPLE) | chains(And, SIMPLE | CONDITIONS)


@st.composite
def aggregates(draw):
    function = draw(
        st.sampled_from(
            [
                "count",
                "sum",
                "average",
                "min",
                "max",
                "stddev",
                "latest",
                "uniqueCount",
                "percentile",
                "histogram",
            ]
        )
    )
    per = None
    argument, parameters = draw(NUMERIC), ()
    match function:
        case "count":
            argument = draw(st.none() | VALUES)
        case "min" | "max":
            argument = draw(NUMERIC | TEXT_PATHS | TIME_PATHS)
        case "latest" | "uniqueCount":
            argument = draw(VALUES)
        case "percentile":
            parameters = (draw(st.sampled_from([0.0, 25.0, 50.0, 95.0, 100.0])),)
        case "histogram":
            parameters = (
                draw(st.sampled_from([-2.0, 0.0])),
                0.5,
                draw(st.sampled_from([1.0, 5.0])),
            )
    if function in {"count", "sum"}:
        per = draw(st.none() | st.sampled_from([timedelta(seconds=1), timedelta(minutes=3)]))
    return Aggregate(function, argument, parameters, draw(st.none() | SIMPLE), per)


@st.composite
def queries(draw):
    windows = [(60, 60), (10, 10), (7, 7), (60, 20), (12, 3)]
    window, slide = draw(st.sampled_from(windows))
    columns = draw(st.lists(aggregates(), min_size=1, max_size=4))
    facets = draw(st.lists(VALUES, max_size=3))
    return Query(
        tuple(Result(aggregate, f"c{number}") for number, aggregate in enumerate(columns)),
        TOPIC,
        draw(WHERES),
        tuple(Facet(expression, f"f{number}") for number, expression in enumerate(facets)),
        max_groups=draw(st.sampled_from([1_000, 1_000, 1, 2])),
        window=timedelta(seconds=window),
        slide=timedelta(seconds=slide),
        allowed_lateness=timedelta(seconds=draw(st.sampled_from([0, 5, 30]))),
    )


@st.composite
def query_sets(draw):
    """Queries, some of which differ in the constants of their conditions alone."""
    trees = draw(st.lists(queries(), min_size=1, max_size=3))
    for tree in draw(st.lists(st.sampled_from(trees), max_size=3)):
        if tree.where is not None:
            trees.append(replace(tree, where=draw(with_other_constants(tree.where))))
    return {f"q{number}": print_query(tree) for number, tree in enumerate(trees)}
