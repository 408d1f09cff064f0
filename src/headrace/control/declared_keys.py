"""The keys that topics were declared with when they were applied, remembered on this machine."""

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
    """What was remembered, by topic."""
    return read_json(state / _FILE, _from_json) or {}


def _from_json(found: Mapping[str, Any]) -> dict[str, KnownKey]:
    return {name: KnownKey(**one) for name, one in found.items()}


def remember_keys(state: Path, topics: Iterable[Topic], ids: Mapping[str, str]) -> None:
    """Remember the keys of those ``topics`` that exist, beside what is known of others."""
    known = read_keys(state)
    known |= {one.name: KnownKey(ids[one.name], one.key) for one in topics if one.name in ids}
    write_json(state / _FILE, {name: asdict(one) for name, one in sorted(known.items())})
