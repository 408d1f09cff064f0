"""Where declarations are made, noted while a project is loaded.

A project's declarations are the values of its modules' variables. One that no variable names would
not be found, and is reported instead, unless `replace` makes of it one that a variable names.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType

# The code that makes a declaration calls these: `dataclasses.replace` makes one, too.
_BETWEEN = frozenset({"headrace", "dataclasses", "copy"})


@dataclass(frozen=True, slots=True)
class MadeDeclaration:
    """A declaration, and the code that has made it.

    Attributes:
        value: the declaration.
        module: name of the module.
        file: of the module.
        line: of the call.
        replaced: the declaration that `replace` makes it of; ``None``: it is made by itself.
    """

    value: DeclaredValue
    module: str
    file: str
    line: int
    replaced: DeclaredValue | None


class DeclaredValue:
    """Base class of what a module declares."""

    name: str

    def __post_init__(self) -> None:
        made = _MADE.get()
        if made is not None:
            made.append(_made_by_caller(self))


_MADE: ContextVar[list[MadeDeclaration] | None] = ContextVar("made", default=None)


@contextlib.contextmanager
def noted_declarations() -> Iterator[list[MadeDeclaration]]:
    """Gives a list to which each declaration is added that is made within the block."""
    made: list[MadeDeclaration] = []
    token = _MADE.set(made)
    try:
        yield made
    finally:
        _MADE.reset(token)


def _made_by_caller(value: DeclaredValue) -> MadeDeclaration:
    frame, replaced = inspect.currentframe(), None
    while frame is not None and _module(frame).partition(".")[0] in _BETWEEN:
        replaced = replaced or _replaced_by(frame)
        frame = frame.f_back
    if frame is None:  # an interpreter that shows no frames
        return MadeDeclaration(value, "", "", 1, None)
    file, line = frame.f_code.co_filename, frame.f_lineno
    return MadeDeclaration(value, _module(frame), file, line, replaced)


def _replaced_by(frame: FrameType) -> DeclaredValue | None:
    """Returns the declaration that a call of `replace` gets; the name of its argument varies."""
    if _module(frame) != dataclasses.__name__:
        return None
    arguments = frame.f_locals.values()
    return next((value for value in arguments if isinstance(value, DeclaredValue)), None)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
