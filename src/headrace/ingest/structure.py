"""What no JSON parser refuses: repeated keys, huge documents, integers beyond 64 bits, NUL."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.events import LONG_RANGE, Why

_parse: Callable[[bytes], Any] = msgspec.json.Decoder().decode
_LEAST, _MOST = LONG_RANGE
# A colon after white space: the count of keys below would miss its key.
_SPACED_COLONS = (b" :", b"\t:", b"\n:", b"\r:")


@dataclass(frozen=True, slots=True)
class StructureLimits:
    """Of one event: nesting, keys over all its objects, bytes of a text."""

    depth: int
    keys: int
    string_bytes: int


class StructureCheck:
    """Looks at a whole event, declared fields or not.

    The text of most events proves by its counts of brackets and quoted keys that nothing can be
    wrong; only the others are walked through.
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
        limits = self._limits
        keys = text.count(b'":')
        return (
            len(text) <= limits.string_bytes
            and keys <= limits.keys
            and text.count(b"{") + text.count(b"[") <= limits.depth
            and keys == _keys(document)
            and b"\\u0000" not in text
            and not any(colon in text for colon in _SPACED_COLONS)
        )

    def _fault(self, text: bytes) -> Why | None:
        pairs = json.loads(text, object_pairs_hook=_Members)
        return _Walk(self._limits).fault(pairs)


def _keys(document: Any) -> int:
    """Keys of all objects; -1 when an integer is beyond 64 bits."""
    keys, open_values = 0, [document]
    while open_values:
        value = open_values.pop()
        if type(value) is dict:
            keys += len(value)
            value = value.values()
        for one in value:
            kind = type(one)
            if kind is dict or kind is list:
                open_values.append(one)
            elif kind is int and not _LEAST <= one <= _MOST:
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
