"""What ARCHITECTURE.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_NAMED = re.compile(r"`([a-z_]+(?:/[a-z_]+)*\.py)` `([\w.]+)`")
_FILE = re.compile(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`")


@pytest.fixture
def page(root: Path) -> str:
    """The page."""
    return (root / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_every_file_and_folder_exists(page: str, root: Path) -> None:
    source = root / "src" / "headrace"
    paths = set(_FILE.findall(page))
    assert paths
    # A name alone, such as `rules.py`, is that of a module of each capability.
    names = {file.name for file in source.rglob("*.py")}
    assert not [
        path for path in paths - names if not ((source / path).exists() or (root / path).exists())
    ]


def test_every_name_stands_in_its_file(page: str, root: Path) -> None:
    named = _NAMED.findall(page)
    assert named
    missing = [
        (file, name)
        for file, name in named
        if not _defines((root / "src" / "headrace" / file).read_text(encoding="utf-8"), name)
    ]
    assert not missing


def _defines(text: str, name: str) -> bool:
    return all(
        re.search(rf"(?:class|def) {part}\b|^{part} = ", text, re.MULTILINE)
        for part in name.split(".")
    )


def test_the_layers_are_those_that_are_enforced(page: str, root: Path) -> None:
    contract = (root / "pyproject.toml").read_text(encoding="utf-8").partition("layers = [")[2]
    enforced = re.findall(r"[a-z_]+", contract.partition("]")[0])
    table = page.partition("\n| layer |")[2].partition("\n\n")[0]
    assert not [layer for layer in enforced if not re.search(rf"\b{layer}\b", table)]
