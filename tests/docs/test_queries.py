"""The pages of standing queries: their examples are queries, and the first one has results."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import chain
from pathlib import Path

import pytest
from tests.quick_java import quick_kafka

from headrace.errors import QueryTextError
from headrace.model.event import event_schema
from headrace.queries.language import check_query, parse_query
from headrace.queries.language.clauses import CLAUSES, clause_texts
from headrace.queries.language.functions import AGGREGATES, FUNCTIONS
from headrace.queries.language.words import QueryText
from headrace.runtime.java.installation import Java

HEADRACE = Path(sys.executable).with_name("headrace")
PAGE = "docs/queries.md"
LANGUAGE = "docs/reference/query-language.md"
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
    parts = re.split(r"^## (.+)$", pages[LANGUAGE], flags=re.MULTILINE)
    return dict(zip(["", *parts[1::2]], [parts[0], *parts[2::2]], strict=True))


def test_the_first_example_is_a_query(pages: dict[str, str]) -> None:
    check(pages[PAGE].partition("```sql")[2].partition("```")[0])


def test_the_query_beyond_a_limit_is_refused_as_the_page_says(sections: dict[str, str]) -> None:
    query, _, rest = sections["Limits"].partition("```sql")[2].partition("```")
    with pytest.raises(QueryTextError) as raised:
        check(query)
    assert raised.value.reason == " ".join(rest.partition("```")[2].partition("```")[0].split())


def test_every_example_of_a_clause_is_one(sections: dict[str, str]) -> None:
    examples = list(
        chain.from_iterable(_EXAMPLE.findall(row[0]) for row in rows(sections["Clauses"]))
    )
    shown = set()
    for example in examples:
        [(clause, _)] = clause_texts(QueryText(example).words(), CLAUSES)
        clauses = {"SELECT": "SELECT count(*)", "FROM": "FROM clicks", clause.name: example}
        check(" ".join(clauses.values()))
        shown.add(clause.name)
    assert shown == {clause.name for clause in CLAUSES}


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


@pytest.fixture
def project(
    blocks: Callable[[str], list], tmp_path: Path, java: Java, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The project of the page's first example, with ``send.py`` and ``ask.py``; servers stop."""
    for name, value in quick_kafka(java).items():
        monkeypatch.setenv(name, value)
    [settings] = (block.text for block in blocks("toml") if block.page == PAGE)
    flow, send, ask, *_ = (block.text for block in blocks("python") if block.page == PAGE)
    texts = {"headrace.toml": settings, "flow.py": flow, "send.py": send, "ask.py": ask}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    yield tmp_path
    subprocess.run([HEADRACE, "down"], cwd=tmp_path, check=False)


@pytest.mark.drill
def test_the_first_example_has_results(blocks: Callable[[str], list], project: Path) -> None:
    start, register, show, *_ = (block.text for block in blocks("bash") if block.page == PAGE)
    up, *processes = start.splitlines()
    run_commands(up, project)
    with contextlib.ExitStack() as stack:
        for command in processes:
            process = stack.enter_context(subprocess.Popen(words(command), cwd=project))
            stack.callback(process.send_signal, signal.SIGTERM)
        run_commands(register, project)
        follow, explain = show.splitlines()
        with subprocess.Popen([sys.executable, "send.py"], cwd=project):
            followed = run_commands(f"{follow} --limit 4", project)
        with subprocess.Popen([sys.executable, "send.py"], cwd=project):
            asked = run_python("ask.py", project)
        explained = run_commands(explain, project)
        shown = run_commands(follow.removesuffix(" --follow"), project)
    line = r"\S+Z to \S+Z final, country=\w\w, count\(\*\) \d+, mean [.\d]+\n"
    assert re.fullmatch(f"({line}){{4}}", followed)
    assert re.match(r"\S+Z \d+\n", asked)
    assert "No index: every event is looked at, 1.0 for each match." in explained
    assert shown.splitlines()[0].split() == ["window", "country", "count(*)", "mean", "kind"]


def words(command: str) -> list[str]:
    return [str(HEADRACE), *shlex.split(command)[1:]]


def run_commands(script: str, folder: Path) -> str:
    environ = os.environ | {"PATH": f"{HEADRACE.parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-e"], input=script, cwd=folder, env=environ, check=True, text=True,
        stdout=subprocess.PIPE, timeout=120,
    ).stdout  # fmt: skip


def run_python(name: str, folder: Path) -> str:
    return subprocess.run(
        [sys.executable, name], cwd=folder, check=True, text=True, stdout=subprocess.PIPE,
        timeout=120,
    ).stdout  # fmt: skip
