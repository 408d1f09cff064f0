"""What no JSON parser refuses: repeated keys, huge documents, integers beyond 64 bits, NUL."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.events import LONG_RANGE, Why

_parse: Callable[[bytes], Any] = msgspec.json.Decoder().decode
_encode = msgspec.json.encode
_LEAST, _MOST = LONG_RANGE
_SPACED_COLON = re.compile(rb'"[ \t\r\n]+:')


@dataclass(frozen=True, slots=True)
class StructureLimits:
    """Of one event: nesting, keys over all its objects, bytes of a text."""

    depth: int
    keys: int
    string_bytes: int


class StructureCheck:
    """Looks at a whole event, declared fields or not.

    Most events are the very text that an encoder makes of their document, or have as many keys as
    that, so nothing was repeated; only the others are parsed again, slowly.
    """

    def __init__(self, limits: StructureLimits) -> None:
        self._limits = limits

    def __call__(self, text: bytes) -> tuple[Any, Why | None]:
        """The document, and why it is refused.

        Raises:
            ValueError, RecursionError: the text is not JSON.
        """
        document = _parse(text)
        if type(document) is not dict or self._is_plain(text, document):
            return document, None
        return document, self._fault(text)

    def _is_plain(self, text: bytes, document: dict[str, Any]) -> bool:
        keys = _keys(document, self._limits.depth)
        return (
            0 <= keys <= self._limits.keys
            and len(text) <= self._limits.string_bytes
            and (b"\\" not in text or b"\\u0000" not in text)
            and (_encode(document) == text or _has_as_many_keys(text, keys))
        )

    def _fault(self, text: bytes) -> Why | None:
        pairs = json.loads(text, object_pairs_hook=_Members)
        return _Walk(self._limits).fault(pairs)


def _has_as_many_keys(text: bytes, keys: int) -> bool:
    """A text that repeats a key has more of them than its document."""
    # A colon after white space would not be counted.
    return text.count(b'":') == keys and not _SPACED_COLON.search(text)


def _keys(document: Any, most_containers: int) -> int:
    """Keys of all objects; -1 with more containers than that, or an integer beyond 64 bits."""
    keys, open_values = 0, [document]
    for value in open_values:
        if type(value) is dict:
            keys += len(value)
            members = value.values()
        else:
            members = value
        for one in members:
            kind = type(one)
            if kind is dict or kind is list:
                open_values.append(one)
            elif kind is int and not _LEAST <= one <= _MOST:
                return -1
        if len(open_values) > most_containers:
            return -1
    return keys


class _Members(list[tuple[str, Any]]):
    """An object with every member, repeated ones too."""


class _Walk:
    def __init__(self, limits: StructureLimits) -> None:
        self._limits, self._keys = limits, 0

    def fault(self, value: Any, path: str = "$", depth: int = 1) -> Why | None:
        if isinstance(value, str):
            return self._in_text(value, path)
        if isinstance(value, list):
            return self._in_container(value, path, depth)
        if type(value) is int and not _LEAST <= value <= _MOST:
            return "out-of-range", f"{path} is an integer beyond 64 bits"
        return None

    def _in_text(self, text: str, path: str) -> Why | None:
        if "\0" in text:
            return "nul-character", f"{path} is a string with a NUL character (\\u0000)"
        size = len(text.encode())
        if size > self._limits.string_bytes:
            most = self._limits.string_bytes
            return "text-too-long", f"{path} is a string of {size} bytes, expected at most {most}"
        return None

    def _in_container(self, value: list[Any], path: str, depth: int) -> Why | None:
        if depth > self._limits.depth:
            return "too-deep", f"the event is nested deeper than {self._limits.depth} levels"
        if not isinstance(value, _Members):
            return self._in_all(((f"{path}[{n}]", one) for n, one in enumerate(value)), depth)
        self._keys += len(value)
        if self._keys > self._limits.keys:
            return "too-many-keys", f"the event has more than {self._limits.keys} keys"
        return self._in_names(value, path) or self._in_all(
            ((f"{path}.{name}", one) for name, one in value), depth
        )

    def _in_names(self, members: _Members, path: str) -> Why | None:
        seen: set[str] = set()
        for name, _ in members:
            if name in seen:
                return "repeated-key", f"key {name!r} stands more than once in {path}"
            if "\0" in name:
                return "nul-character", f"a key in {path} holds a NUL character (\\u0000)"
            seen.add(name)
        return None

    def _in_all(self, values: Any, depth: int) -> Why | None:
        found = (self.fault(value, path, depth + 1) for path, value in values)
        return next((why for why in found if why is not None), None)
