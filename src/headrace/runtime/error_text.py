"""Exceptions of a user's code: their kinds, and texts, which are bounded.

Whatever attributes and methods of an exception do, none of these functions raises.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias, TypeGuard, TypeVar

MAX_CHARACTERS = 8 * 1024
"""Longer texts are cut: they go into logs, headers and the reason for which an instance ends."""

_MAX_TRACEBACK_CHARACTERS = 256 * 1024  # enough for a recursion through two functions

Kind = TypeVar("Kind", bound=BaseException)
ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None]


class UnprintableError(Exception):
    """Stands in the log for an exception that can't be formatted, or is too long."""


def is_error(error: object, *kinds: type[Kind]) -> TypeGuard[Kind]:
    """Returns whether an exception is of one of the kinds by its type, as ``except`` takes it.

    ``isinstance`` also asks for its ``__class__``, which may be code that raises.
    """
    return issubclass(type(error), kinds)


def traceback_of(error: BaseException) -> TracebackType | None:
    """Returns the traceback that Python keeps with an exception."""
    traceback_slot = vars(BaseException)["__traceback__"]
    kept: TracebackType | None = traceback_slot.__get__(error)
    return kept


def error_text(error: BaseException) -> str:
    """Returns the type and message of an exception, such as ``KeyError: 'campaign'``."""
    return bounded_text(error, lambda: "".join(traceback.format_exception_only(error)).strip())


def error_message(error: BaseException) -> str:
    """Returns the message of an exception, or its type where it has none."""
    return bounded_text(error, lambda: str(error) or type(error).__name__)


def bounded_text(thing: object, write: Callable[[], object]) -> str:
    """Returns what ``write`` says of ``thing``, cut with "…"; where it raises, the type alone."""
    try:
        text = str(write())
    except BaseException:  # noqa: BLE001 - whatever the user's code raises
        # By `type` itself: a metaclass may have raised.
        name = type.__getattribute__(type(thing), "__qualname__")
        text = f"{name}, which can't be written as text"
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def exc_info(error: BaseException) -> ExcInfo:
    """Returns what ``logging`` takes, so that the line is written whatever the exception is.

    A tuple, since ``logging`` takes an exception that is false as a truth value for none. Another
    exception with the same traceback stands for one that can't be formatted or is too long.
    """
    try:
        size = sum(map(len, traceback.format_exception(error)))
    except BaseException:  # noqa: BLE001 - whatever the user's code raises
        size = _MAX_TRACEBACK_CHARACTERS + 1
    if size > _MAX_TRACEBACK_CHARACTERS:
        return UnprintableError, UnprintableError(error_text(error)), traceback_of(error)
    return type(error), error, traceback_of(error)
