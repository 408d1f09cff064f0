"""Words for what a registered schema allows and an event class does not take, in every format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.model import EventField


def named(path: str) -> str:
    """Returns what a phrase calls the value at a path; an empty path is the event itself."""
    return f"field {path!r}" if path else "an event"


def may_be_null(path: str) -> str:
    """Returns the phrase about a null that the class does not take."""
    return f"{named(path)} may be null"


def may_be_missing(path: str) -> str:
    """Returns the phrase about a field that the class requires."""
    return f"{named(path)} may be missing"


def texts_not_taken(field: EventField, texts: Iterable[str], path: str) -> Iterator[str]:
    """Yields a phrase if a field takes some texts alone, and one of these is none of them."""
    unknown = next((text for text in texts if field.values and text not in field.values), None)
    if unknown is not None:
        yield f"{named(path)} may be {unknown!r}, which is none of its texts"
