"""The site and the map of the docs have each page once, in the same order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

MAX_COLUMNS = 88  # of a code block of the front page, which would scroll sideways
_TREE = re.compile(r"^\.\. toctree::\n((?:   .*\n|\n)+)", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def navigation(root: Path) -> list[str]:
    """Paths of the pages in the navigation of the site, from the root, in its order."""
    return list(_entries(root))


def _entries(root: Path) -> Iterator[str]:
    index = (root / "docs/site/index.rst").read_text(encoding="utf-8")
    for tree in _TREE.findall(index):
        for entry in filter(None, map(str.strip, tree.splitlines())):
            if entry.startswith("/"):
                files = sorted(root.glob(f"{entry[1:]}.md"))
                assert files, entry
                yield from (str(file.relative_to(root)) for file in files)


def test_the_site_has_each_page_once(navigation: list[str], pages: dict[str, str]) -> None:
    assert sorted(navigation) == sorted(pages.keys() - {"docs/README.md"})


def test_the_map_of_the_docs_has_the_order_of_the_site(
    navigation: list[str], pages: dict[str, str], root: Path
) -> None:
    rows = re.findall(r"^(?:\| |\d+\. )\[.+?\]\((.+?\.md)\)", pages["docs/README.md"], re.MULTILINE)
    listed = [str((root / "docs" / row).resolve().relative_to(root)) for row in rows]
    assert ["README.md", *listed] == navigation


def test_code_of_the_front_page_fits_its_width(pages: dict[str, str]) -> None:
    lines = [line for block in _FENCED.findall(pages["README.md"]) for line in block.splitlines()]
    assert not [line for line in lines if len(line) > MAX_COLUMNS]
