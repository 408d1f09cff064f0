"""Partials: the JSON values that hold an aggregate of some rows, and how they are read.

Integers may be longer than 64 bits, so partials need a JSON library that keeps them, as msgspec
does.
"""

from __future__ import annotations

import base64
import binascii
from reprlib import repr as shortened
from typing import TypeAlias

from headrace.queries.language.functions import ValueType

Partial: TypeAlias = "int | float | str | bool | list[Partial] | None"
_PYTHON_TYPES = {
    ValueType.TEXT: str,
    ValueType.INTEGER: int,
    ValueType.NUMBER: float,
    ValueType.BOOLEAN: bool,
    ValueType.TIME: int,
}


class PartialError(ValueError):
    """A partial is damaged, or belongs to another aggregate."""


def read_integer(partial: Partial, minimum: int | None = None) -> int:
    """Returns the integer in a partial.

    Raises:
        PartialError: if the partial is not an integer, or is less than ``minimum``.
    """
    # In Python, a boolean is an integer, too.
    if not isinstance(partial, int) or isinstance(partial, bool):
        raise PartialError(f"{shortened(partial)} is no integer")
    if minimum is not None and partial < minimum:
        raise PartialError(f"{partial} is less than {minimum}")
    return partial


def read_list(partial: Partial, length: int) -> list[Partial]:
    """Returns the list in a partial.

    Raises:
        PartialError: if the partial is not a list of that length.
    """
    if not isinstance(partial, list) or len(partial) != length:
        raise PartialError(f"{shortened(partial)} is no list of {length} items")
    return partial


def read_bytes(partial: Partial) -> bytes:
    """Returns the bytes that a base64 text holds.

    Raises:
        PartialError: if the partial is not a base64 text.
    """
    if not isinstance(partial, str):
        raise PartialError(f"{shortened(partial)} is no base64 text")
    try:
        return base64.b64decode(partial, validate=True)
    except (binascii.Error, ValueError) as error:  # ValueError: characters that are not ASCII
        raise PartialError(f"{shortened(partial)} is no base64 text: {error}") from error


def write_bytes(content: bytes) -> str:
    """Returns bytes as a base64 text."""
    return base64.b64encode(content).decode()


def read_value(partial: Partial, value_type: ValueType) -> int | float | str | bool:
    """Returns the value in a partial; a time is in microseconds since 1970.

    Raises:
        PartialError: if the partial has another type.
    """
    expected = _PYTHON_TYPES[value_type]
    if type(partial) is not expected:
        raise PartialError(f"{shortened(partial)} is not {value_type.value}")
    return partial  # type: ignore[return-value]  # mypy does not narrow by `type()` of a variable
