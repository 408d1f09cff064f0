"""Where a record of another site comes from: the header ``headrace-origin``.

Every mirror and dispatcher adds one at the end: a record that came over two links has two of them.
The value is text: ``site/topic/partition/offset``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

ORIGIN = "headrace-origin"
"""The name of the header."""

ORIGIN_PATTERN = "([A-Za-z0-9_-]+)/([A-Za-z0-9._-]+)/([0-9]{1,10})/([0-9]{1,19})"
"""A regular expression of the whole value: site, topic, partition and offset."""

_VALUE = re.compile(ORIGIN_PATTERN.encode())


@dataclass(frozen=True, slots=True)
class Origin:
    """The record that another one is a copy of."""

    site: str
    topic: str
    partition: int
    offset: int


def origin_prefix(site: str, topic: str, partition: int) -> bytes:
    """Returns the header's value up to the offset, which differs from record to record."""
    return f"{site}/{topic}/{partition}/".encode()


def origins(headers: Iterable[tuple[str, bytes | None]]) -> list[Origin]:
    """Returns the places a record came from, the first one first.

    A header of that name with another value is not one of ours, and left out.
    """
    values = (value for name, value in headers if name == ORIGIN and value is not None)
    matches = (match for value in values if (match := _VALUE.fullmatch(value)))
    return [
        Origin(match[1].decode(), match[2].decode(), int(match[3]), int(match[4]))
        for match in matches
    ]
