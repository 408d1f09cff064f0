"""Converts the case of texts character by character, as Arrow does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import Column

_ARROW = {"lower": pc.utf8_lower, "upper": pc.utf8_upper}
_SURROGATES = range(0xD800, 0xE000)


def with_case(texts: Column, functions: Sequence[str]) -> Column:
    """Returns texts in lower or upper case.

    Spark's own functions depend on surrounding characters, and may return more characters.

    Args:
        texts: a column that is cheap to evaluate, as it is read several times.
        functions: one or more of ``lower`` and ``upper``, in the order in which they are applied.
    """
    from pyspark.sql import functions as f

    ascii_texts = f.lower(texts) if functions[-1] == "lower" else f.upper(texts)
    is_ascii = f.octet_length(texts) == f.char_length(texts)
    before, after = _changed_characters(tuple(functions))
    return f.when(is_ascii, ascii_texts).otherwise(f.translate(texts, before, after))


@lru_cache
def _changed_characters(functions: tuple[str, ...]) -> tuple[str, str]:
    """Returns the characters that functions change, and the replacement of each character."""
    characters = "".join(chr(i) for i in range(sys.maxunicode + 1) if i not in _SURROGATES)
    changed = pa.scalar(characters)
    for function in functions:
        changed = _ARROW[function](changed)
    pairs = zip(characters, changed.as_py(), strict=True)
    before, after = zip(*((old, new) for old, new in pairs if old != new), strict=True)
    return "".join(before), "".join(after)
