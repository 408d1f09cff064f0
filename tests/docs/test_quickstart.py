"""The quickstart works: its commands, one after the other, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from tests.docs.quickstart_recording import PICTURE, commands, drawn, without_figures
from tests.docs.terminal import drawn_lines, run
from tests.quick_java import quick_kafka

from headrace.runtime.java.installation import Java

BIN = Path(sys.executable).parent


@pytest.fixture
def environ(java: Java) -> dict[str, str]:
    """An environment whose commands are those of headrace's own."""
    return os.environ | quick_kafka(java) | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def folder(tmp_path: Path, environ: dict[str, str]) -> Iterator[Path]:
    """An empty folder; a project left in it is stopped at the end."""
    yield tmp_path
    for project in tmp_path.glob("*/headrace.toml"):
        command = [str(BIN / "headrace"), "down", "--project", str(project.parent)]
        subprocess.run(command, env=environ, check=False)


def test_its_commands_bring_a_hundred_rows_to_the_lake_and_stop_what_they_started(
    folder: Path, environ: dict[str, str]
) -> None:
    steps = run(commands(), folder, environ)
    shown = "\n".join(text for step in steps for text in step.texts)
    rows = pl.read_delta(str(folder / "ads" / ".headrace" / "lake" / "page_views"))
    assert rows.height == rows["event_id"].n_unique() == 100
    assert re.search(r"page-views/\d:\d+ +wrong-type", shown)  # the bad record, by its place
    assert "1 of 1 line(s) sent to page-views" in shown
    assert steps[-1].texts[-1].endswith(": down")
    recorded = drawn_lines(PICTURE.read_text(encoding="utf-8"))
    assert without_figures(recorded) == without_figures(drawn_lines(drawn(steps))), (
        "`make recording` draws what the commands show now"
    )
