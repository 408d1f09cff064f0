"""Remembers on this machine the keys that topics were declared with when they were applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.kafka.topics import KnownKey
from headrace.model import Topic
from headrace.runtime.json_files import read_json, write_json

_FILE = "topics.json"


def read_keys(state: Path) -> dict[str, KnownKey]:
    """Returns the remembered keys by topic."""
    return read_json(state / _FILE, _from_json) or {}


def _from_json(stored: Mapping[str, Any]) -> dict[str, KnownKey]:
    return {name: KnownKey(**key) for name, key in stored.items()}


def remember_keys(state: Path, topics: Iterable[Topic], ids: Mapping[str, str]) -> None:
    """Adds the keys of those ``topics`` that have an id to the remembered ones."""
    known = read_keys(state)
    known |= {
        topic.name: KnownKey(ids[topic.name], topic.key) for topic in topics if topic.name in ids
    }
    write_json(state / _FILE, {name: asdict(key) for name, key in sorted(known.items())})
