"""The sink of docs/sinks.md: its package installs, `check` knows it, it passes the suite."""

from __future__ import annotations

import importlib
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from headrace.settings import Secret
from headrace.sinks.api import SinkContext
from headrace.testing import SinkContract, SinkLab

PACKAGE = "headrace_sqlite"
FLOW = """
from headrace import Pipeline, Topic
from headrace_sqlite import Sqlite

class Click:
    id: int

clicks = Topic("clicks", event=Click)
to_sqlite = Pipeline("clicks-to-sqlite", source=clicks, sink=Sqlite("clicks"))
"""
PROJECT = """
[project]
name = "p"
modules = ["flow"]
[sinks.sqlite]
file = "clicks.db"
"""


@pytest.fixture(scope="module")
def installed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package in a folder, as pip leaves it."""
    folder = tmp_path_factory.mktemp("installed")
    source = root / "examples" / "sqlite_sink"
    module = (source / f"{PACKAGE}.py").read_text()
    (folder / f"{PACKAGE}.py").write_text(module)
    info = folder / f"{PACKAGE}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: headrace-sqlite\nVersion: 0.1.0\n")
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    [[name, target]] = project["entry-points"]["headrace.sinks"].items()
    (info / "entry_points.txt").write_text(f"[headrace.sinks]\n{name} = {target}\n")
    return folder


def test_the_page_shows_the_whole_sink(root: Path, pages: dict[str, str]) -> None:
    module = (root / "examples" / "sqlite_sink" / f"{PACKAGE}.py").read_text()
    assert module in pages["docs/sinks.md"]


@pytest.mark.parametrize(("kind", "code"), [("sqlite", 0), ("sqlit", 2)])
def test_check_knows_an_installed_sink_and_its_settings(
    installed: Path, tmp_path: Path, kind: str, code: int
) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "headrace.toml").write_text(PROJECT.replace("sinks.sqlite", f"sinks.{kind}"))
    done = subprocess.run(
        [sys.executable, "-m", "headrace.cli", "check"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert (f"[sinks.{kind}]" in done.stdout + done.stderr) == bool(code)


class TestSqlite(SinkContract):
    @pytest.fixture
    def lab(
        self, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[SinkLab]:
        monkeypatch.syspath_prepend(str(installed))
        sink = importlib.import_module(PACKAGE).Sqlite("clicks")
        file = tmp_path / "clicks.db"
        with sqlite3.connect(file) as database:
            database.execute("CREATE TABLE clicks (id INTEGER, name TEXT, at TEXT)")

        def read() -> list[dict[str, object]]:
            with sqlite3.connect(file) as database:
                rows = database.execute("SELECT id, name, at FROM clicks").fetchall()
            return [
                {"id": number, "name": name, "at": datetime.fromisoformat(at)}
                for number, name, at in rows
            ]

        lab = SinkLab(sink, SinkContext("p", "", {}, {"file": Secret(str(file))}), read)
        yield lab
        lab.close()
