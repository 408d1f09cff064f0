"""The text of an envelope to the texts of its events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from headrace.events.parsing.splitting import (
    SPACE,
    UnsplittableError,
    decode_raw,
    malformed,
    split_array,
    split_lines,
    without_literals,
)
from headrace.model import ArrayEnvelope, Envelope, LinesEnvelope, ObjectEnvelope

Splitter: TypeAlias = Callable[[bytes], list[bytes]]
"""Returns the text of each event of an envelope; raises UnsplittableError."""

_EVENTS = "events"
_RAW = msgspec.json.Decoder(msgspec.Raw)


def splitter_of(envelope: Envelope) -> Splitter:
    """Returns what divides the envelopes of a topic; it is made once, and called for each.

    :mod:`headrace.model.envelope` has the reasons of UnsplittableError.
    """
    match envelope:
        case LinesEnvelope():
            return lambda text: split_lines(text, envelope.max_events)
        case ArrayEnvelope():
            return lambda text: _split_array(text, envelope)
        case ObjectEnvelope():
            return _ObjectSplitter(envelope)
    raise TypeError(envelope)


def wrapped(event: bytes, envelope: Envelope) -> bytes:
    """Returns the text of an envelope with a single event, whose copied fields are in it."""
    match envelope:
        case ArrayEnvelope():
            return b"[" + event + b"]"
        case ObjectEnvelope():
            text = b"[" + event + b"]"
            for name in reversed(envelope.events.split(".")):
                text = b"{" + msgspec.json.encode(name) + b":" + text + b"}"
            return text
    return event


def _split_array(text: bytes, envelope: Envelope) -> list[bytes]:
    stripped = text.strip(SPACE)
    if not stripped:
        raise _empty("an array")
    if not stripped.startswith(b"["):
        raise _no_array(stripped)
    return split_array(stripped, envelope.max_events, envelope.max_bytes)


def _no_array(text: bytes) -> UnsplittableError:
    try:
        _RAW.decode(text)
    except (ValueError, RecursionError) as error:
        return malformed("envelope", error)
    return UnsplittableError("not-an-array", "the events are not in a JSON array")


def _empty(expected: str) -> UnsplittableError:
    return UnsplittableError("empty", f"the envelope is empty, expected {expected} of events")


class _ObjectSplitter:
    """Divides JSON objects: takes the fields that are declared, and passes over all others."""

    def __init__(self, envelope: ObjectEnvelope) -> None:
        self._envelope = envelope
        paths = {_EVENTS: envelope.events} | {f"copied {n}": p for n, p in envelope.copied.items()}
        self._names = {name: f"copied {name}" for name in envelope.copied}
        self._tree = _tree(paths)
        self._decode = msgspec.json.Decoder(_struct(self._tree)).decode
        self._decode_replaced = msgspec.json.Decoder(_struct(_without_literals(self._tree))).decode

    def __call__(self, text: bytes) -> list[bytes]:
        if not text.strip(SPACE):
            raise _empty("an object")
        fields = self._fields(text)
        if _EVENTS not in fields:
            detail = f"the envelope has no field {self._envelope.events!r}"
            raise UnsplittableError("missing-events", detail)
        events = _split_array(fields[_EVENTS], self._envelope)
        copied = [
            msgspec.json.encode(name) + b":" + fields[field]
            for name, field in self._names.items()
            if field in fields
        ]
        return self._with_copied(events, b",".join(copied)) if copied else events

    def _fields(self, text: bytes) -> dict[str, bytes]:
        try:
            members = decode_raw(text, self._decode, self._decode_replaced)
            return dict(_raw_fields(members, self._tree))
        except msgspec.ValidationError as error:
            raise UnsplittableError("not-an-object", f"the envelope: {error}") from None
        except (ValueError, RecursionError) as error:
            raise malformed("envelope", error) from error

    def _with_copied(self, events: list[bytes], copied: bytes) -> list[bytes]:
        """Puts the copied fields before those of each event: of a repeated field the last counts.

        What is no object stays as it is, and is rejected for that.
        """
        size = len(copied) * len(events) + sum(map(len, events))
        if size > self._envelope.max_bytes:
            detail = f"{size} bytes with the copied fields in every event"
            allowed = f"{self._envelope.max_bytes} are allowed"
            raise UnsplittableError("envelope-too-large", f"{detail}, {allowed}")
        return [
            b"{" + copied + (b"" if _is_empty(event) else b",") + event[1:]
            if event.startswith(b"{")
            else event
            for event in events
        ]


def _is_empty(event: bytes) -> bool:
    return event[1:2] in b" \t\r\n}" and not event[1:-1].strip(SPACE)


_Tree: TypeAlias = Mapping[str, Any]
"""By the name of a member of an object: the name of a field to take, or the tree of an object."""


def _tree(paths: Mapping[str, str]) -> _Tree:
    tree: dict[str, Any] = {}
    for field, path in paths.items():
        *objects, last = path.split(".")
        inner = tree
        for name in objects:
            inner = inner.setdefault(name, {})
        inner[last] = field
    return tree


def _without_literals(tree: _Tree) -> _Tree:
    """Returns the tree with the names that are in a text whose literals are replaced."""
    return {
        without_literals(name.encode()).decode(): member
        if isinstance(member, str)
        else _without_literals(member)
        for name, member in tree.items()
    }


def _struct(tree: _Tree) -> type[msgspec.Struct]:
    fields: list[Any] = [
        (f"f{number}", msgspec.Raw | msgspec.UnsetType, msgspec.UNSET)
        if isinstance(member, str)
        else (f"f{number}", _struct(member) | msgspec.UnsetType, msgspec.UNSET)
        for number, member in enumerate(tree.values())
    ]
    names = {f"f{number}": name for number, name in enumerate(tree)}
    return msgspec.defstruct("Envelope", fields, rename=names)


def _raw_fields(struct: Any, tree: _Tree) -> Iterator[tuple[str, bytes]]:
    for value, member in zip(msgspec.structs.astuple(struct), tree.values(), strict=True):
        if value is msgspec.UNSET:
            continue
        if isinstance(member, str):
            yield member, bytes(value)
        else:
            yield from _raw_fields(value, member)
