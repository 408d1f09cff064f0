"""Pictures of pages are there, can be read in light and dark, and all of them are shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from headrace.workers.states import LaneState

MAX_WIDTH = 800
_SHOWN = re.compile(r"!\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_SVG = "{http://www.w3.org/2000/svg}"
_DRAWN = re.compile(r"\+-{2,}|-{2,}>|={2,}>")


@pytest.fixture
def shown(pages: dict[str, str], root: Path) -> dict[Path, list[str]]:
    """Texts that stand for a picture where it can't be seen, by its file."""
    texts: dict[Path, list[str]] = {}
    for page, content in pages.items():
        for picture in _SHOWN.finditer(content):
            file = ((root / page).parent / picture["target"]).resolve()
            texts.setdefault(file, []).append(picture["text"])
    return texts


def test_every_picture_is_shown_with_a_text(shown: dict[Path, list[str]], root: Path) -> None:
    assert shown.keys() == set((root / "docs/images").iterdir())
    assert all(text for texts in shown.values() for text in texts)


def test_every_picture_can_be_read_in_light_and_dark(root: Path) -> None:
    for file in (root / "docs/images").iterdir():
        text = file.read_text(encoding="utf-8")
        picture = ET.fromstring(text)
        assert picture.tag == f"{_SVG}svg", file.name
        assert all((picture.findtext(f"{_SVG}{name}") or "").strip() for name in ("title", "desc"))
        assert float(picture.attrib["width"]) <= MAX_WIDTH, file.name
        assert "prefers-color-scheme: dark" in text, file.name
        assert not re.search(r"<script|<image|href|@import|@font-face|url\((?!#)", text), file.name


def test_the_picture_of_a_lane_has_its_states(root: Path) -> None:
    picture = ET.parse(root / "docs/images/lane-states.svg")
    drawn = [text.text for text in picture.iter(f"{_SVG}text") if "code" in text.attrib["class"]]
    assert sorted(drawn) == sorted(LaneState)


def test_no_page_draws_with_characters(blocks: Callable[[str], list[Any]]) -> None:
    drawn = [block for name in ("", "text") for block in blocks(name) if _DRAWN.search(block.text)]
    assert not drawn
