"""What docs/seeds.md says of the articles: the tests and benchmarks that it names exist."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import NamedTuple

import pytest
from tests.docs.guarantee_map import ROOT, tier

PAGE = (ROOT / "docs/seeds.md").read_text(encoding="utf-8")
STATES = ("works", "partly", "missing", "outside")


class Statement(NamedTuple):
    """One row: what an article says, and what holds it."""

    article: str
    number: int
    held_by: str
    state: str


def statements() -> list[Statement]:
    _, *sections = re.split(r"^## (\d+):.*$", PAGE, flags=re.MULTILINE)
    rows = []
    for article, text in zip(sections[::2], sections[1::2], strict=True):
        for line in re.findall(r"^\| \d+ \|.*$", text, re.MULTILINE):
            number, _, _, held_by, state = line.strip("|").split(" | ")
            rows.append(Statement(article, int(number), held_by.strip(), state.strip(" |")))
    return rows


STATEMENTS = statements()


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda row: f"{row.article}-{row.number}")
def test_what_works_is_held_by_tests_and_benchmarks_that_exist(statement: Statement) -> None:
    tests = re.findall(r"`(\w[\w/]*\.py::[\w:]+)`", statement.held_by)
    assert [name for name in tests if not _is_test(name)] == []
    results = json.loads((ROOT / "bench/results.json").read_text(encoding="utf-8"))
    measured = {row["benchmark"] for row in results["rows"]}
    benchmarks = re.findall(r"benchmark `([\w-]+)`", statement.held_by)
    assert set(benchmarks) <= measured
    state, _, missing = statement.state.partition(": ")
    assert state in STATES
    assert tests or benchmarks or state != "works"
    assert missing or state != "partly"


def test_the_sums_are_those_of_the_rows() -> None:
    counted = Counter((row.article, row.state.partition(":")[0]) for row in STATEMENTS)
    for article in sorted({row.article for row in STATEMENTS}):
        counts = [counted[article, state] for state in STATES]
        sums = " | ".join(map(str, [*counts, sum(counts)]))
        assert f"| {article} | {sums} |" in PAGE


def _is_test(name: str) -> bool:
    """Returns whether there is such a test, or such a class that inherits the tests of a suite."""
    path, _, test = name.partition("::")
    if not test.startswith("Test") or "::" in test:
        return tier(name) is not None
    file = ROOT / "tests" / path
    return file.is_file() and f"class {test}(" in file.read_text(encoding="utf-8")
