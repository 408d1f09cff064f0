"""Kernels on long texts: none takes time that is quadratic in their length."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.queries.compile.arrow import kernels


@pytest.mark.parametrize(
    "part", ["a" * 249_999 + "b", "a" * 249_998 + "ba", "b" + "a" * 249_999, "a" * 97 + "ba"]
)
def test_a_part_is_looked_for_in_a_long_text_that_nearly_has_it(part):
    texts = pa.array(["a" * 500_000, "c" + part + "c"])
    assert kernels.contains(texts, pa.array([part, part])).to_pylist() == [False, True]


def test_parts_are_those_of_their_rows_and_null_beside_null():
    texts, parts = ["abc", "abc", "bc", None, "", None], ["ab", "bc", "ab", "ab", "", None]
    rows = pa.array(texts), pa.array(parts)
    assert kernels.starts_with(*rows).to_pylist() == [True, False, False, None, True, None]
    assert kernels.ends_with(*rows).to_pylist() == [False, True, False, None, True, None]
    assert kernels.contains(*rows).to_pylist() == [True, True, False, None, True, None]


def test_one_text_has_the_parts_of_all_rows():
    parts = pa.array(["", "b", "c", None, "abcd"])
    assert kernels.contains(pa.scalar("abc"), parts).to_pylist() == [True, True, True, None, False]
    assert kernels.ends_with(pa.scalar("abc"), parts[:0]).to_pylist() == []
