"""Trees of queries, of every kind."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st

from headrace.queries.language.functions import AGGREGATES, FUNCTIONS
from headrace.queries.language.tree import (
    Aggregate,
    And,
    Arithmetic,
    Between,
    ClosedBy,
    Closing,
    Comparison,
    Facet,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Negative,
    Not,
    Or,
    Path,
    Query,
    Result,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
NAMES = st.one_of(
    st.sampled_from(
        """a price from select window date filter Null é by empty count not and true interval case
        timestamp limit as windows emit 1x x-y a.b q" '""".split()  # noqa: SIM905 - to be readable
    ),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=6),
)
PATHS = st.lists(NAMES, min_size=1, max_size=6).map(lambda names: Path(tuple(names)))
LITERALS = st.one_of(
    TEXTS,
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: x != 0 or str(x) == "0.0"),
    st.booleans(),
).map(Literal)


def _calls(arguments):
    names = st.sampled_from(sorted(FUNCTIONS))
    return st.builds(FunctionCall, names, st.lists(arguments, max_size=3).map(tuple))


def _chains(kind, operands):
    other = operands.filter(lambda each: not isinstance(each, kind))
    return st.builds(kind, st.lists(other, min_size=2, max_size=4).map(tuple))


def _nested(operands):
    return st.one_of(
        st.builds(Negative, operands),
        st.builds(Arithmetic, st.sampled_from(["+", "-", "*", "/"]), operands, operands),
        st.builds(
            Comparison, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), operands, operands
        ),
        st.builds(Between, operands, operands, operands),
        st.builds(In, operands, st.lists(LITERALS, min_size=1, max_size=3).map(tuple)),
        st.builds(Like, operands, TEXTS),
        st.builds(IsNull, operands),
        st.builds(Not, operands),
        _chains(And, operands),
        _chains(Or, operands),
        _calls(operands),
    )


EXPRESSIONS = st.recursive(PATHS | LITERALS, _nested, max_leaves=8)
DURATIONS = st.integers(1, 200_000).map(lambda seconds: timedelta(seconds=seconds))


@st.composite
def aggregates(draw):
    function = draw(st.sampled_from(sorted(AGGREGATES)))
    count = AGGREGATES[function].parameters
    numbers = st.floats(allow_nan=False, allow_infinity=False)
    parameters = draw(st.lists(numbers, min_size=count, max_size=count))
    is_count_of_all = function == "count" and draw(st.booleans())
    return Aggregate(
        function,
        None if is_count_of_all else draw(EXPRESSIONS),
        tuple(parameters),
        draw(st.none() | EXPRESSIONS),
        draw(st.none() | DURATIONS) if AGGREGATES[function].has_rate else None,
    )


@st.composite
def queries(draw):
    window = draw(DURATIONS)
    by = draw(st.sampled_from(ClosedBy))
    after = timedelta(0) if by is ClosedBy.EVENT_TIME else draw(DURATIONS)
    names = st.just("") | NAMES
    return Query(
        tuple(draw(st.lists(st.builds(Result, aggregates(), names), min_size=1, max_size=3))),
        draw(NAMES | st.sampled_from(["clicks-raw", "a.b", "1", "x_1"])),
        draw(st.none() | EXPRESSIONS),
        tuple(draw(st.lists(st.builds(Facet, EXPRESSIONS, names), max_size=3))),
        draw(st.integers(1, 5_000)),
        window,
        draw(st.just(window) | DURATIONS),
        draw(st.just(timedelta(0)) | DURATIONS),
        Closing(by, after),
        draw(st.none() | DURATIONS),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.integers(0, 10)),
    )
