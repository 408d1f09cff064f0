"""The first real project works: its files and commands, one after the other, as they are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl
import pytest
from tests.docs.terminal import run
from tests.quick_java import quick_kafka

from headrace.model import event_schema
from headrace.pipelines.source.decode import decoder_for
from headrace.project.check import load_project
from headrace.runtime.java.installation import Java
from headrace.settings import load_settings

BIN = Path(sys.executable).parent
PAGE = "docs/first-project.md"
_BLOCK = re.compile(r"^```(toml|json|python|sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILES = {"toml": "headrace.toml", "json": "orders.ndjson"}
_NAME = re.compile(r'"""(\w+\.py): ')
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\+00:00| UTC)")
_TASKS = re.compile(r"\d+ (?=tasks|files written)")  # more on a machine with more cores
_RATES = re.compile(r"( finished(?: \d+){6})(?: [\d,.]+){4}")


@pytest.fixture
def environ(java: Java) -> dict[str, str]:
    """An environment whose commands are those of headrace's own."""
    return os.environ | quick_kafka(java) | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def folder(tmp_path: Path, environ: dict[str, str]) -> Iterator[Path]:
    """An empty folder; a project left in it is stopped at the end."""
    yield tmp_path
    subprocess.run([str(BIN / "headrace"), "down"], cwd=tmp_path, env=environ, check=False)


def commands(page: str) -> list[str]:
    """Commands that write the files of the page, and its own, in its order."""
    written: list[str] = []
    for language, text in _BLOCK.findall(page):
        if language == "sh":
            written += text.splitlines()
        elif language != "text":
            written.append(f"cat > {_name(language, text)} <<'END'\n{text}END")
    return written


def _name(language: str, text: str) -> str:
    return _FILES.get(language) or _NAME.match(text)[1]


def lasting(lines: Iterable[str]) -> list[str]:
    """Lines without what differs between runs: times, rates, tasks, and the width of columns."""
    narrow = (_TIME.sub("TIME", " ".join(line.split())) for line in lines)
    return [_TASKS.sub("", _RATES.sub(r"\1", line)) for line in narrow]


@pytest.mark.drill
def test_its_commands_show_what_the_page_shows_and_repair_the_tables(
    pages: dict[str, str], folder: Path, environ: dict[str, str]
) -> None:
    steps = run(commands(pages[PAGE]), folder, environ)
    shown = [line for step in steps for line in step.texts]
    rest, everything = iter(lasting(shown)), "\n".join(shown)
    for language, text in _BLOCK.findall(pages[PAGE]):
        for line in lasting(text.splitlines()) if language == "text" else ():
            assert line in rest, f"no {line!r} after the line before in\n{everything}"
    lake = folder / ".headrace" / "lake"
    orders, totals = (pl.read_delta(str(lake / name)) for name in ("orders", "totals"))
    assert sorted(orders["order_id"]) == ["A-1", "A-2", "A-3", "A-5"]
    rows = zip(totals["order_id"], map(str, totals["total"]), strict=True)
    assert sorted(rows) == [
        ("A-1", "9.00"),
        ("A-1", "9.00"),
        ("A-2", "12.00"),
        ("A-3", "4.50"),
        ("A-5", "12.00"),
    ]


@pytest.fixture
def files(pages: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Texts of the files that the page has first, in an empty folder, by name."""
    texts: dict[str, str] = {}
    for language, text in _BLOCK.findall(pages[PAGE]):
        if language not in {"sh", "text"}:
            texts[_name(language, text)] = text
            (tmp_path / _name(language, text)).write_text(text)
    return texts


def test_each_line_of_the_log_is_what_the_page_says(
    pages: dict[str, str],
    files: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    topic = load_project(load_settings(tmp_path, {})).topics["orders"]
    decoder = decoder_for(topic.record_format, event_schema(topic.event))
    decoded = decoder.decode([line.encode() for line in files["orders.ndjson"].splitlines()])
    assert decoded.rows["order_id"].to_pylist() == ["A-1", "A-2", "A-1"]
    reasons = [reason for reason, _ in decoded.rejected.values()]
    assert reasons == ["missing-field", "out-of-range", "unknown-value"]
    rows = re.findall(r"^\| `(A-\d)` \| `([a-z-]+)` \|", pages[PAGE], re.MULTILINE)
    assert rows == list(zip(["A-3", "A-4", "A-5"], reasons, strict=True))


def test_its_edits_make_a_project_that_checks(
    pages: dict[str, str], files: dict[str, str], tmp_path: Path, environ: dict[str, str]
) -> None:
    own = commands(pages[PAGE])
    edits = [line for line in own if line.startswith("sed ") or line == "headrace check"]
    script = ["bash", "-ec", "\n".join([*edits, "headrace check"])]
    checked = subprocess.run(
        script, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    assert checked.stdout.splitlines()[-1] == "Valid: 1 topic(s), 2 pipeline(s)."
    assert 'total + item["price"] * item["quantity"])' in (tmp_path / "totals.py").read_text()
