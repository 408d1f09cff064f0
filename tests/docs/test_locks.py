"""The demos are installed by a lock of their own, which is a part of the one lock."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_ENTRY = re.compile(r"^(?P<name>[\w.-]+)==(?P<rest>(?:.*\\\n)+.*)$", re.MULTILINE)
_SOURCES = re.compile(r"^([\w.-]+)==(?:.*\\\n)+.*\n((?: +#.*\n?)+)", re.MULTILINE)
_NAME = re.compile(r"[\w-]+")


def _entries(lock: Path) -> dict[str, set[str]]:
    """Returns, by name, the version, the marker and the hashes of each package of a lock."""
    entries: dict[str, set[str]] = {}
    for match in _ENTRY.finditer(lock.read_text()):
        entries.setdefault(match["name"], set()).add(match["rest"])
    return entries


def test_the_lock_of_the_demos_has_versions_and_hashes_of_the_one_lock(root: Path) -> None:
    whole, part = _entries(root / "requirements.lock"), _entries(root / "requirements-demo.lock")
    assert {name: whole.get(name) for name in part} == part


def test_the_lock_of_the_demos_has_the_named_extras_and_no_tools_of_developers(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())
    extras, groups = project["project"]["optional-dependencies"], project["dependency-groups"]
    makefile = (root / "Makefile").read_text()
    named = next(line for line in makefile.splitlines() if line.startswith("DEMO_EXTRAS := "))
    needed = project["project"]["dependencies"] + groups["demo"]
    needed += [each for extra in named.split()[2:] for each in extras[extra]]
    part = set(_entries(root / "requirements-demo.lock"))
    assert {_NAME.match(each)[0] for each in needed} <= part
    tools = {_NAME.match(each)[0] for each in groups["dev"] if isinstance(each, str)}
    # A tool may be there because an extra's library needs it.
    lock = (root / "requirements-demo.lock").read_text()
    asked_for = {name for name, sources in _SOURCES.findall(lock) if "pyproject.toml" in sources}
    assert len(asked_for) > len(needed) / 2
    assert not asked_for & tools
