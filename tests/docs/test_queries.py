"""The page of the language: every example is a query, and every function is there."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import chain

import pytest

from headrace.model.event import event_schema
from headrace.queries.language import check_query, parse_query
from headrace.queries.language.functions import AGGREGATES, FUNCTIONS
from headrace.queries.language.parser import CLAUSES

PAGE = "docs/queries.md"
_EXAMPLE = re.compile(r"`([^`]+)`")


class Owner:
    name: str


class Click:
    country: str
    campaign: str
    position: int
    price: float
    coupon: str | None
    is_new: bool
    at: datetime
    owner: Owner


def check(text: str) -> None:
    check_query(parse_query(text), event_schema(Click), text)


def rows(section: str) -> list[list[str]]:
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.fixture
def sections(pages: dict[str, str]) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", pages[PAGE], flags=re.MULTILINE)
    return dict(zip(["", *parts[1::2]], [parts[0], *parts[2::2]], strict=True))


def test_the_first_example_is_a_query(sections: dict[str, str]) -> None:
    check(sections[""].partition("```sql")[2].partition("```")[0])


def test_every_example_of_a_clause_is_one(sections: dict[str, str]) -> None:
    examples = list(
        chain.from_iterable(_EXAMPLE.findall(row[0]) for row in rows(sections["Clauses"]))
    )
    names = {" ".join(clause) for clause in CLAUSES}
    assert {name for name in names if any(each.startswith(name) for each in examples)} == names
    for example in examples:
        if example.startswith("SELECT"):
            check(f"{example} FROM clicks")
        elif example.startswith("FROM"):
            check(f"SELECT count(*) {example}")
        else:
            check(f"SELECT count(*) FROM clicks {example}")


def test_every_aggregate_has_an_example(sections: dict[str, str]) -> None:
    section = sections["Aggregates"]
    examples = list(chain.from_iterable(_EXAMPLE.findall(row[0]) for row in rows(section)))
    assert {each.partition("(")[0] for each in examples} == {*AGGREGATES, "filter", "rate"}
    for example in examples:
        check(f"SELECT {example} FROM clicks")


def test_every_expression_is_one(sections: dict[str, str]) -> None:
    examples = chain.from_iterable(
        _EXAMPLE.findall(row[0]) for row in rows(sections["Expressions"])
    )
    checked = set()
    for example in examples:
        # Of a row such as "`AND`, `OR`", the first shows how the others are used.
        if not re.fullmatch(r"[A-Z ]+|[<>=!]+", example) or example == "TRUE":
            check(f"SELECT count(*) FROM clicks FACET {example}")
            checked.add(example.partition("(")[0])
    assert checked >= FUNCTIONS.keys()
