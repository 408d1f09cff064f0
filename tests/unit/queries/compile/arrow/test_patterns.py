"""Patterns match as regular expressions do, also those that regular expressions are slow with."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.queries.compile.arrow.patterns import like
from headrace.queries.language.patterns import pieces_of

TEXTS = st.none() | st.text("ab€😀\n", max_size=12)


def expected(pattern, text):
    pieces = [
        "".join(re.escape(part) if isinstance(part, str) else f".{{{part}}}" for part in piece)
        for piece in pieces_of(pattern)
    ]
    expression = re.compile(".*".join(pieces), re.DOTALL)
    return None if text is None else expression.fullmatch(text) is not None


@given(st.text("ab€%_", max_size=8), st.lists(TEXTS, max_size=8))
def test_patterns_match_as_regular_expressions_do(pattern, texts):
    values = pa.array(texts, pa.string())
    assert like(pattern)(values).to_pylist() == [expected(pattern, text) for text in texts]
    assert like(pattern)(values[1:]).to_pylist() == [expected(pattern, text) for text in texts[1:]]


@pytest.mark.parametrize("pattern", ["a%", "%_a", "%a_%a%"])
def test_texts_are_looked_at_in_parts(pattern):
    texts = ["aba", None, "", "abaa", "b"]
    matched = like(pattern, max_bytes=1)(pa.array(texts)).to_pylist()
    assert matched == [expected(pattern, text) for text in texts]


def test_a_constant_text_has_one_match():
    assert like("%a_")(pa.scalar("bab")).as_py() is True
    assert like("ab")(pa.scalar("abc")).as_py() is False


@pytest.mark.parametrize(
    "pattern",
    [
        "%" + ("😀" * 9 + "_") * 99 + "a%",
        "%" + "😀" * 998 + "a%",
        "%".join(["", *["😀_😀😀😀😀😀😀😀"] * 99, "a"]),
    ],
)
def test_a_long_pattern_is_looked_for_in_a_long_text_that_nearly_matches(pattern):
    text = "😀" * 300_000
    assert like(pattern)(pa.array([text, text + "a"])).to_pylist() == [False, True]
