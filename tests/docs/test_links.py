"""Links between pages lead somewhere, and the map of the docs leaves nothing out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?P<target>[^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)


def test_every_link_between_pages_resolves(pages: dict[str, str], root: Path) -> None:
    broken = [
        f"{page}: {target}"
        for page, text in pages.items()
        for target in _local_links(text)
        if not _resolves(root, page, target)
    ]
    assert not broken


def test_every_page_is_on_the_map(pages: dict[str, str], root: Path) -> None:
    listed = {
        (root / target.partition("#")[0]).resolve() for target in _local_links(pages["README.md"])
    } | {
        (root / "docs" / target.partition("#")[0]).resolve()
        for target in _local_links(pages["docs/README.md"])
    }
    missing = [page for page in pages if page != "README.md" and root / page not in listed]
    assert not missing


@pytest.mark.parametrize("heading", ["Context", "Decision", "Consequences"])
def test_every_decision_says_why_what_and_what_follows(pages: dict[str, str], heading: str) -> None:
    decisions = {page: text for page, text in pages.items() if "/decisions/" in page}
    assert decisions
    assert not [page for page, text in decisions.items() if f"\n## {heading}\n" not in text]


def _local_links(text: str) -> list[str]:
    targets = [found["target"] for found in _LINK.finditer(_FENCED.sub("", text))]
    return [target for target in targets if "://" not in target]


def _resolves(root: Path, page: str, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (root / page).parent / path if path else root / page
    if not file.exists():
        return False
    return not anchor or anchor in _anchors(file.read_text(encoding="utf-8"))


def _anchors(text: str) -> set[str]:
    titles = [found["title"] for found in _HEADING.finditer(_FENCED.sub("", text))]
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
