"""Converts the case of texts character by character, as Arrow does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import Column

_ARROW = {"lower": pc.utf8_lower, "upper": pc.utf8_upper}


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
    characters = changed = _cased_characters()
    for function in functions:
        changed = _ARROW[function](changed).as_py()
    pairs = zip(characters, changed, strict=True)
    before, after = zip(*((old, new) for old, new in pairs if old != new), strict=True)
    return "".join(before), "".join(after)


@cache
def _cased_characters() -> str:
    """Returns the characters that any function changes: a few thousand of a million."""
    valid = chain(range(0xD800), range(0xE000, sys.maxunicode + 1))  # surrogates are between them
    characters = "".join(map(chr, valid))
    lower, upper = pc.utf8_lower(characters).as_py(), pc.utf8_upper(characters).as_py()
    cases = zip(characters, lower, upper, strict=True)
    return "".join(old for old, low, up in cases if not old == low == up)
