"""The page of public names has each of them once, with the file where its docstring is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import headrace
import headrace.testing
import headrace.workers

_ROW = re.compile(
    r"^\| (`\w+`(?:, `\w+`)*) \| .+? \|(?: \[.+?\]\(\.\./\.\./(.+?)\) \|)?$", re.MULTILINE
)


@pytest.fixture
def listed(pages: dict[str, str]) -> list[tuple[str, str]]:
    """Each name of the page, with the file that its row links to, or an empty text."""
    rows = _ROW.findall(pages["docs/reference/python.md"])
    return [(name, file) for names, file in rows for name in re.findall(r"\w+", names)]


def test_it_has_every_public_name_once(listed: list[tuple[str, str]]) -> None:
    modules = (headrace, headrace.workers, headrace.testing)
    public = {name for module in modules for name in module.__all__}
    assert sorted(name for name, _ in listed) == sorted(public)


def test_each_name_links_to_its_source(listed: list[tuple[str, str]], root: Path) -> None:
    linked = [(name, file) for name, file in listed if file]
    assert linked == [(name, source(name, root)) for name, _ in linked]


def source(name: str, root: Path) -> str:
    """The file of a public name, from the root."""
    modules = (headrace, headrace.workers, headrace.testing)
    [declared, *_] = (getattr(module, name) for module in modules if name in module.__all__)
    return str(_file(declared).relative_to(root))


def _file(declared: Any) -> Path:
    return Path(inspect.getsourcefile(declared)).resolve()
