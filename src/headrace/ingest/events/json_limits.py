"""What no JSON parser rejects: repeated keys, huge documents, integers beyond 64 bits, NUL."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.events import LONG_RANGE, Rejection

_parse: Callable[[bytes], Any] = msgspec.json.Decoder().decode
_encode = msgspec.json.encode
_MIN_INTEGER, _MAX_INTEGER = LONG_RANGE
_SHOWN_CHARACTERS = 80
_SPACED_COLON = re.compile(rb'"[ \t\r\n]+:')


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """What one event may hold: levels of nesting, keys of all objects, bytes of a text or a key."""

    depth: int
    keys: int
    string_bytes: int


class JsonLimitsCheck:
    """Checks a whole event, declared fields or not.

    Most events equal the text that an encoder makes of their document, or have as many keys, so no
    key was repeated; only the others are parsed twice, slowly.
    """

    def __init__(self, limits: JsonLimits) -> None:
        self._limits = limits

    def __call__(self, text: bytes) -> tuple[Any, Rejection | None]:
        """Returns the document, and why it is rejected.

        Raises:
            ValueError, RecursionError: the text is not JSON.
        """
        document = _parse(text)
        if type(document) is not dict or self._is_plain(text, document):
            return document, None
        pairs = json.loads(text, object_pairs_hook=_Members)
        fault = _Walk(self._limits).fault(pairs)
        return document, None if fault is None else fault.why()

    def _is_plain(self, text: bytes, document: dict[str, Any]) -> bool:
        keys = _keys(document, self._limits.depth)
        return (
            0 <= keys <= self._limits.keys
            and len(text) <= self._limits.string_bytes
            # In valid JSON, NUL is always an escape: without one, no string needs a check.
            and (b"\\" not in text or b"\\u0000" not in text)
            and (
                _encode(document) == text
                # A text that repeats a key has more of them than its document. Spaced colons are
                # searched for, since the count lacks them.
                or (text.count(b'":') == keys and not _SPACED_COLON.search(text))
            )
        )


def _keys(document: Any, most_containers: int) -> int:
    """Counts the keys of all objects; -1 with more containers than that, or beyond 64 bits."""
    # A list that grows while it is walked, in place of recursion: one frame for any depth.
    keys, open_values = 0, [document]
    for value in open_values:
        if type(value) is dict:
            keys += len(value)
            members = value.values()
        else:
            members = value
        for member in members:
            kind = type(member)
            if kind is dict or kind is list:
                open_values.append(member)
            elif kind is int and not _MIN_INTEGER <= member <= _MAX_INTEGER:
                return -1
        if len(open_values) > most_containers:
            return -1
    return keys


class _Members(list[tuple[str, Any]]):
    """An object with every member, also repeated ones."""


class _Fault:
    """What is wrong with a value, and the steps from it up to the event.

    Only a fault has a path, since to write one for each value would copy a key for every element
    below it.
    """

    def __init__(self, code: str, detail: str) -> None:
        self._code, self._detail = code, detail
        self.steps: list[str | int] = []

    def why(self) -> Rejection:
        """Returns the reason code and the sentence, with the path in it, cut to 80 characters."""
        return self._code, self._detail.format(path=_path(reversed(self.steps)))


class _Walk:
    def __init__(self, limits: JsonLimits) -> None:
        self._limits, self._keys = limits, 0

    def fault(self, value: Any, depth: int = 1) -> _Fault | None:
        kind = type(value)
        if kind is str:
            return self._in_text(value, "{path} is a string")
        if kind is _Members:
            return self._in_object(value, depth)
        if kind is list:
            return self._in_array(value, depth)
        if kind is int and not _MIN_INTEGER <= value <= _MAX_INTEGER:
            return _Fault("out-of-range", "{path} is an integer beyond 64 bits")
        return None

    def _in_text(self, text: str, what: str) -> _Fault | None:
        if "\0" in text:
            return _Fault("nul-character", what + " with a NUL character (\\u0000)")
        most = self._limits.string_bytes
        # No character takes more than four bytes.
        if 4 * len(text) > most and (size := len(text.encode())) > most:
            expected = f"expected at most {most} (ingest.max_string_bytes)"
            return _Fault("text-too-long", f"{what} of {size} bytes, {expected}")
        return None

    def _in_array(self, values: list[Any], depth: int) -> _Fault | None:
        if depth > self._limits.depth:
            return self._too_deep()
        # Numbers, the bulk of large arrays, are checked here without a call for each.
        for number, value in enumerate(values):
            kind = type(value)
            if (
                kind is float
                or kind is bool
                or (kind is int and _MIN_INTEGER <= value <= _MAX_INTEGER)
            ):
                continue
            fault = self.fault(value, depth + 1)
            if fault is not None:
                fault.steps.append(number)
                return fault
        return None

    def _in_object(self, members: _Members, depth: int) -> _Fault | None:
        if depth > self._limits.depth:
            return self._too_deep()
        self._keys += len(members)
        if self._keys > self._limits.keys:
            most = self._limits.keys
            return _Fault("too-many-keys", f"the event has more than {most} keys")
        fault = self._in_names(members)
        if fault is not None:
            return fault
        for name, value in members:
            fault = self.fault(value, depth + 1)
            if fault is not None:
                fault.steps.append(name)
                return fault
        return None

    def _in_names(self, members: _Members) -> _Fault | None:
        seen: set[str] = set()
        for name, _ in members:
            if name in seen:
                # Doubled braces: the path is filled into this text later.
                shown = _cut(repr(name[:_SHOWN_CHARACTERS])).replace("{", "{{").replace("}", "}}")
                return _Fault("repeated-key", f"key {shown} stands more than once in {{path}}")
            fault = self._in_text(name, "a key in {path} is a string")
            if fault is not None:
                return fault
            seen.add(name)
        return None

    def _too_deep(self) -> _Fault:
        return _Fault("too-deep", f"the event is nested deeper than {self._limits.depth} levels")


def _path(steps: Iterable[str | int]) -> str:
    path = "$"
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else "." + _cut(step)
        if len(path) > _SHOWN_CHARACTERS:
            break
    return _cut(path)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
