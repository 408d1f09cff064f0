"""A list of a profile, as it is declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

MAX_ENTRIES = 10_000

Where: TypeAlias = Mapping[str, str | int | bool]
"""A condition: the value that each of these columns has."""


@dataclass(frozen=True)
class Latest:
    """A list of a profile: the latest events of a user.

    Attributes:
        max_entries: how many it keeps, from 1 to 10,000.
        columns: values that an entry holds; none: all columns but the key, the event time, the
            event id and those of the Kafka record.
        where: which rows are in the list, by a value of a column, such as ``{"kind": "view"}``;
            none: all rows.
    """

    max_entries: int
    columns: tuple[str, ...] = ()
    where: Where = field(default_factory=dict)
