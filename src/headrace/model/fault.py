"""What is wrong with a declaration, and the checks that several declarations share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import UnionType


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a declaration; ``field`` when it is a field of its event class."""

    message: str
    remedy: str = ""
    field: str = ""


def is_a(value: object, kind: type | UnionType) -> bool:
    """``isinstance`` for users' values: the type checker must not take the answer for granted."""
    return isinstance(value, kind)


def are_texts(value: object) -> bool:
    """Whether a user's value is a list or tuple of texts."""
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def lists_as_tuples(declaration: object, *attributes: str) -> None:
    """Makes tuples of attributes that are lists: both are the same declaration, and hashable."""
    for name in attributes:
        if isinstance(values := getattr(declaration, name), list):
            object.__setattr__(declaration, name, tuple(values))


def at_least(value: object, attribute: str, minimum: int) -> Iterator[Fault]:
    """Yields a fault unless the attribute is a whole number of at least ``minimum``."""
    number = getattr(value, attribute)
    # True is an int for isinstance.
    if type(number) is not int or number < minimum:
        name = f"{type(value).__name__}.{attribute}"
        yield Fault(f"{name} is {number!r}; it must be a whole number of at least {minimum}")


def with_or_without(attribute: str, value: object) -> str:
    """Returns how a declaration sets an attribute, whose default is None."""
    return f"without {attribute}" if value is None else f"with {attribute}={value!r}"


def duration(
    value: object, attribute: str, minimum: timedelta, maximum: timedelta = timedelta.max
) -> Iterator[Fault]:
    """Yields a fault unless the attribute is a timedelta from ``minimum`` to ``maximum``."""
    time = getattr(value, attribute)
    name = f"{type(value).__name__}.{attribute}"
    if not isinstance(time, timedelta) or time < minimum:
        sign = "above zero" if minimum else "not negative"
        yield Fault(f"{name} is {time!r}; it must be a timedelta {sign}")
    elif time > maximum:
        yield Fault(f"{name} is {time!r}", f"at most timedelta(days={maximum.days})")
