"""The API reference has every public name, once, and no other."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import headrace
import headrace.errors
import headrace.testing
import headrace.workers

_DIRECTIVE = re.compile(r"^\.\. auto(?:class|function|exception|data):: (\S+)$", re.MULTILINE)
_EXCLUDED = re.compile(r"^ +:exclude-members: (.+)$", re.MULTILINE)


@pytest.fixture
def documented(root: Path) -> Counter[str]:
    """The names that the pages of the reference show."""
    pages = (root / "docs" / "site" / "api").glob("*.rst")
    return Counter(
        name for page in pages for name in _DIRECTIVE.findall(page.read_text(encoding="utf-8"))
    )


def test_every_public_name_is_documented_once(documented: Counter[str]) -> None:
    declared = {f"headrace.{name}" for name in headrace.__all__}
    of_workers = set(headrace.workers.__all__) - set(headrace.__all__)
    declared |= {f"headrace.workers.{name}" for name in of_workers}
    declared |= {f"headrace.testing.{name}" for name in headrace.testing.__all__}
    assert documented == Counter(declared)


def test_errors_with_an_entry_of_their_own_are_left_out_of_the_list_of_all(
    root: Path, documented: Counter[str]
) -> None:
    page = (root / "docs" / "site" / "api" / "errors.rst").read_text(encoding="utf-8")
    excluded = [name for names in _EXCLUDED.findall(page) for name in names.split(", ")]
    own_entries = {name.rpartition(".")[2] for name in documented}
    assert sorted(excluded) == sorted(own_entries & set(headrace.errors.__all__))
