"""The sentences of docs/guarantees.md, and the tests that guarantees.toml names for each.

``python -m tests.docs.guarantee_map`` prints the page with the tests of each sentence, and where
they run.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guarantees.md"
MAP = Path(__file__).with_name("guarantees.toml")

_HEADING = re.compile(r"^#{2,} (?P<title>.+)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_BOLD_TITLE = re.compile(r"^(\*\*[^*]+)\.\*\* ")
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z`*\[])")
_DRILL = re.compile(r"(pytest\.mark\.drill|drills)\b")  # or a file's own decorator of that name
_OPENING_CHARACTERS = 56
_COLUMNS_OF_A_SENTENCE = 3

_Test = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign


class Tier(Enum):
    """Where a test runs, as its markers say."""

    TEST = "make test"
    SHORT_DRILL = "make test, short form of a drill"
    DRILL = "make drills"


@dataclass(frozen=True)
class Sentence:
    """A sentence, a row or a cell of the page: where it stands, how it begins, and all of it."""

    section: str
    opening: str
    text: str

    @property
    def label(self) -> str:
        """Its name in the map: how it begins, and a hash that changes with any word of it."""
        return f"{self.opening} #{hashlib.sha256(self.text.encode()).hexdigest()[:6]}"


def sentences(page: str) -> Iterator[Sentence]:
    """Yields sentences and rows of a page; of tables of more than three columns each cell."""
    _, *sections = _HEADING.split(page)
    for section, text in zip(sections[::2], sections[1::2], strict=True):
        for block in re.split(r"\n\s*\n|\n(?=- )", text.strip()):
            if block.startswith("|"):
                yield from _of_table(section, block.splitlines())
            else:
                for sentence in _of_prose(block):
                    yield Sentence(section, _opening(sentence), sentence)


def read_map() -> dict[str, dict[str, list[str] | str]]:
    """Returns by section and label the tests of a sentence, or what one without promise is."""
    return tomllib.loads(MAP.read_text(encoding="utf-8"))


def tier(name: str) -> Tier | None:
    """Returns where the test ``path::[Class::]name`` runs; None: there is no such test."""
    path, *names = name.split("::")
    file = ROOT / "tests" / path
    marks = _marks(file, names) if names and file.is_file() else None
    if marks is None:
        return None
    drills = [mark for mark in marks if _DRILL.match(mark)]
    if not drills:
        return Tier.TEST
    return Tier.SHORT_DRILL if any("always=" in mark for mark in drills) else Tier.DRILL


def _of_prose(block: str) -> list[str]:
    text = " ".join(block.removeprefix("- ").split())
    # The title of a paragraph is part of its first sentence.
    text = _BOLD_TITLE.sub(r"\1:** ", text)
    return [_plain(sentence) for sentence in _SENTENCE_END.split(text)]


def _of_table(section: str, lines: list[str]) -> Iterator[Sentence]:
    columns, _, *rows = [
        [cell.strip() for cell in _plain(line).strip("|").split("|")] for line in lines
    ]
    for first, *cells in rows:
        if len(columns) <= _COLUMNS_OF_A_SENTENCE:
            yield Sentence(section, _opening(first), " | ".join([first, *cells]))
            continue
        for column, cell in zip(columns[1:], cells, strict=True):
            if cell != "-":
                yield Sentence(section, f"{first}: {column}", f"{first} | {column} | {cell}")


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("**", "").replace("`", "")


def _opening(text: str) -> str:
    if len(text) <= _OPENING_CHARACTERS:
        return text
    return text[:_OPENING_CHARACTERS].rsplit(" ", 1)[0] + "…"


def _marks(file: Path, names: list[str]) -> list[str] | None:
    """Returns the marks of a test, of its class and of its file; None where it is not defined."""
    module = _parsed(file)
    found = [_defined(module, names[0])]
    found += [_inherited(file, names[0], name) for name in names[1:]]
    if None in found or not names[-1].lower().startswith("test"):
        return None
    if isinstance(found[-1], ast.ClassDef):
        return None
    return _assigned_marks(module) + [mark for test in found for mark in _own_marks(test)]


def _own_marks(test: _Test) -> list[str]:
    if isinstance(test, ast.Assign):  # a state machine of hypothesis
        return []
    inside = _assigned_marks(test) if isinstance(test, ast.ClassDef) else []
    return inside + [ast.unparse(decorator) for decorator in test.decorator_list]


def _assigned_marks(body: ast.Module | ast.ClassDef) -> list[str]:
    marks = _defined(body, "pytestmark")
    if marks is None:
        return []
    values = marks.value.elts if isinstance(marks.value, ast.List) else [marks.value]
    return [ast.unparse(mark) for mark in values]


def _inherited(file: Path, class_name: str, name: str) -> _Test | None:
    """Returns what a class has of a name, or a class that it inherits from."""
    module = _parsed(file)
    owner = _defined(module, class_name)
    if owner is None:
        origin = _imported(module, class_name)
        return _inherited(origin, class_name, name) if origin else None
    own = _defined(owner, name)
    bases = (base.id for base in owner.bases if isinstance(base, ast.Name))
    return own or next(filter(None, (_inherited(file, base, name) for base in bases)), None)


def _defined(body: ast.Module | ast.ClassDef, name: str) -> _Test | None:
    for node in body.body:
        if getattr(node, "name", None) == name:
            return node
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node
    return None


def _imported(module: ast.Module, name: str) -> Path | None:
    """Returns the file of the tests, or of ``src``, that a name is imported from."""
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            for folder in (ROOT, ROOT / "src"):
                path = folder.joinpath(*node.module.split("."))
                for file in (path.with_suffix(".py"), path / "__init__.py"):
                    if file.is_file():
                        return file
    return None


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _shown() -> Iterator[str]:
    named = read_map()
    page = sentences(PAGE.read_text(encoding="utf-8"))
    for section, group in groupby(page, key=lambda sentence: sentence.section):
        yield f"\n## {section}\n"
        for sentence in group:
            yield f"\n{sentence.text}\n"
            tests = named.get(section, {}).get(sentence.label, "not in the map")
            for test in [tests] if isinstance(tests, str) else tests:
                yield f"- {test} ({found.value})\n" if (found := tier(test)) else f"- {test}\n"


if __name__ == "__main__":
    sys.stdout.writelines(_shown())
