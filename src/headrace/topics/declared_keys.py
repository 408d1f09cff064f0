"""Remembers on this machine the keys that topics were declared with when they were applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

import msgspec

from headrace.kafka.admin.topics import KnownKey
from headrace.model import Topic
from headrace.runtime.files.json_files import read_json, write_json

_FILE = "topics.json"
_Keys = dict[str, KnownKey]


def read_keys(state: Path) -> _Keys:
    """Returns the remembered keys by topic."""
    return read_json(state / _FILE, partial(msgspec.convert, type=_Keys)) or {}


def remember_keys(state: Path, topics: Iterable[Topic], ids: Mapping[str, str]) -> None:
    """Adds the keys of those ``topics`` that have an id to the remembered ones."""
    known = read_keys(state)
    # With the id of the topic: a recreated topic may have another key.
    known |= {
        topic.name: KnownKey(ids[topic.name], topic.key) for topic in topics if topic.name in ids
    }
    write_json(state / _FILE, {name: asdict(key) for name, key in sorted(known.items())})
