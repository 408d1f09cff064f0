"""What a store of profiles is: a stranger can write one for another database from this file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol, Self

import msgspec

from headrace.events.times import time_of

MAX_ENTRIES_AT_ONCE = 1_000
"""Of a change that readers see as a whole."""
MAX_KEY_BYTES = 1_024
"""Of a key, and of an event id."""


def is_key(user: str) -> bool:
    """Returns whether there can be a profile of a user: a text of 1 to 1,024 bytes of UTF-8."""
    try:
        return 0 < len(user.encode()) <= MAX_KEY_BYTES
    except UnicodeEncodeError:
        return False


class Version(NamedTuple):
    """A value with the event time of its row; the greater of two is the one to keep.

    Attributes:
        at_us: event time, in microseconds since 1970.
        json: the value. It compares as text by code points, which is the order of its bytes.
    """

    at_us: int
    json: str


@dataclass(slots=True)
class ListChange:
    """Entries to merge into a list.

    Attributes:
        max_entries: how many the list keeps.
        entries: by event id; at most ``max_entries``.
    """

    max_entries: int
    entries: dict[str, Version] = field(default_factory=dict)


@dataclass(slots=True)
class ProfileChange:
    """What to merge into the profile of one user.

    Attributes:
        user: the value of the key column, as text.
        forgotten_us: rows up to this event time are removed; None: none are.
        fields: by name; the JSON is a pair of event id and value.
        lists: by name.
    """

    user: str
    forgotten_us: int | None = None
    fields: dict[str, Version] = field(default_factory=dict)
    lists: dict[str, ListChange] = field(default_factory=dict)


@dataclass(frozen=True)
class ProfileField:
    """A field of a profile.

    Attributes:
        value: as JSON has it.
        event_time: of the row that set it.
        event_id: of that row; empty where the sink declares none.
    """

    value: Any
    event_time: datetime
    event_id: str

    @classmethod
    def of(cls, version: Version) -> Self:
        """Reads the pair of event id and value that a change has as JSON."""
        event_id, value = msgspec.json.decode(version.json)
        return cls(value, time_of(version.at_us), event_id)


@dataclass(frozen=True)
class ProfileEntry:
    """An entry of a list: one event.

    Attributes:
        event_time: when it happened.
        event_id: of the event; where the sink declares none, a hash of its time and values.
        values: by column, as JSON has them.
    """

    event_time: datetime
    event_id: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Profile:
    """What a store holds of a user at one moment.

    Attributes:
        store: name of the store.
        user: value of the key column, as text.
        fields: by name.
        lists: by name, the newest entry first.
        forgotten: up to which event time the user is forgotten; None: no row of the last ``ttl``
            says so.
        expires: when nothing of it is left, unless rows come.
    """

    store: str
    user: str
    fields: Mapping[str, ProfileField]
    lists: Mapping[str, tuple[ProfileEntry, ...]]
    forgotten: datetime | None
    expires: datetime


class ProfileStore(Protocol):
    """A connection to one named store, whose profiles live for one ``ttl``. Used on one thread.

    :mod:`headrace.sinks.profiles` says what a profile is. ``tests/contracts/profile_store.py`` is
    the suite that every store must pass.

    All methods raise:
        SinkUnavailableError: if trying again may help, such as where the store does not answer
            in time, by default within 30 seconds. Changes may be in or not.
        SinkError: if it refuses.
    """

    def now_us(self) -> int:
        """Returns the store's time, in microseconds since 1970: one clock for all writers.

        A store may ask for it every ten seconds at most, and add the time that has passed.
        """

    def prepare(self) -> str:
        """Makes the store ready for changes, at the start of a pipeline.

        Returns:
            Why the store, as it is set up, may lose profiles, as a sentence; empty: it does not.
        """

    def merge(self, changes: Iterable[ProfileChange]) -> None:
        """Merges changes into profiles, and returns when the store has all of them.

        Merging is associative, commutative and idempotent: a change may be merged in parts, again,
        or beside any other. One change is visible as a whole, or not at all, unless it has more
        than a thousand entries, or 6 MiB of names, ids and JSON. Event times are from -2**52 to
        2**52.
        """

    def read(self, user: str) -> Profile | None:
        """Returns the profile of a user at one moment; None: no live row, and no marker."""

    def close(self) -> None:
        """Called once, at the end."""
