"""Records that another program might write: valid ones with one member that is extreme."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

TIMES = (
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-14:00",
    "2026-05-01t10:00:00.123456z",
    "2026-05-01T12:00:00.250+02:00",
    "2026-05-01T10:00:00",
    "2026-05-01",
    "2026-12-31T23:59:60Z",
)
NUMBERS = (
    *(0, -1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**300),
    *(-62_135_596_800_001, 253_402_300_799_999, 253_402_300_800_000),
    *(-62_135_596_800_000_000, 253_402_300_799_999_999, 253_402_300_800_000_000),
    *(0.5, 5e-324, 1e308, -1e308),
)
TEXTS = ("", "*", "\x00", "\x1b[31m", "\ud800", "revoked/x", "0" * 64, "ł" * 64)


def nested(levels: int) -> list[Any]:
    """Returns a list in a list, and so on."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


OTHERS = (None, True, [], {}, [None], {"": None}, nested(300))
EXTREMES = (*TIMES, *NUMBERS, *TEXTS, *OTHERS)


def paths(document: Any) -> Iterator[tuple[Any, ...]]:
    """Yields the path of each member and element, at any depth."""
    if isinstance(document, dict | list):
        names = document if isinstance(document, dict) else range(len(document))
        for name in names:
            yield (name,)
            yield from ((name, *rest) for rest in paths(document[name]))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Returns a document with another value at a path."""
    copy = json.loads(json.dumps(document))
    at = copy
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return copy


def variants(document: Any, every: int = 1) -> Iterator[tuple[str, bytes]]:
    """Yields what is extreme, and the JSON of the document with it; one of ``every`` such."""
    extremes = itertools.product(paths(document), EXTREMES)
    for path, value in itertools.islice(extremes, 0, None, every):
        changed = replaced(document, path, value)
        yield f"{path}: {value!r:.60}", json.dumps(changed).encode()
