"""From an empty folder to rows in a real PostgreSQL: the commands of the page, one by one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.docs.terminal import run
from tests.docs.test_first_project import commands, lasting
from tests.integration.postgres_server import PostgresServer, program
from tests.quick_java import quick_kafka

from headrace.runtime.java.installation import Java

BIN = Path(sys.executable).parent
PAGE = "docs/postgres.md"
_SHOWN = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def environ(java: Java, postgres: PostgresServer) -> dict[str, str]:
    """An environment with the database of the page, and commands of headrace and PostgreSQL."""
    path = os.pathsep.join([str(BIN), str(Path(program("psql")).parent), os.environ["PATH"]])
    database = postgres.create_database("shop_of_the_page")
    return os.environ | quick_kafka(java) | {"PATH": path, "SHOP_DATABASE": database}


@pytest.fixture
def folder(tmp_path: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """An empty folder; a project left in it is stopped at the end."""
    yield tmp_path
    subprocess.run([str(BIN / "headrace"), "down"], cwd=tmp_path, env=environ, check=False)


def test_its_files_make_a_project_that_checks(pages: Mapping[str, str], tmp_path: Path) -> None:
    files = [line for line in commands(pages[PAGE]) if line.startswith("cat >")]
    script = ["bash", "-ec", "\n".join([*files, "headrace check"])]
    path = os.pathsep.join([str(BIN), os.environ["PATH"]])
    environ = os.environ | {"PATH": path, "SHOP_DATABASE": "postgresql://127.0.0.1/shop"}
    checked = subprocess.run(
        script, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    assert checked.stdout.splitlines()[-1] == "Valid: 1 topic(s), 1 pipeline(s)."


@pytest.mark.drill
def test_its_commands_write_the_rows_that_the_page_shows(
    pages: Mapping[str, str], folder: Path, environ: Mapping[str, str]
) -> None:
    steps = run(commands(pages[PAGE]), folder, environ)
    tables = [lasting(step.texts) for step in steps if "SELECT" in step.command]
    assert [[line for line in table if line] for table in tables] == [
        text.splitlines() for text in _SHOWN.findall(pages[PAGE])
    ]
