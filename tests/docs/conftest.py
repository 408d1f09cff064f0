"""README and docs as text: pages, code blocks, links."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language, its text."""

    page: str
    language: str
    text: str


Blocks = Callable[[str], list[Block]]


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def pages() -> dict[str, str]:
    """Text of the pages at the root and every page of docs/, by path from the root."""
    files = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}


@pytest.fixture(scope="session")
def blocks(pages: dict[str, str]) -> Blocks:
    """``blocks("python")``: fenced blocks of a language on any page."""
    return lambda language: [one for one in _blocks(pages) if one.language == language]


def _blocks(pages: dict[str, str]) -> Iterator[Block]:
    for page, text in pages.items():
        for found in _FENCE.finditer(text):
            yield Block(page, found["language"], found["text"])
