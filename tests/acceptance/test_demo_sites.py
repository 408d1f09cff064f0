"""`make demo-sites`: what comes in at two sites is joined at the centre, comes home, and agrees."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.acceptance.examples import EXAMPLES
from tests.quick_java import quick_kafka

from headrace.runtime.java.installation import Java

EXAMPLE = "ad_sites"


@pytest.fixture
def project(project: Path) -> Path:
    """A copy of the example, beside another one of which it takes the data and PostgreSQL."""
    other = "ad_serving"
    ignored = shutil.ignore_patterns(".headrace", "__pycache__")
    shutil.copytree(EXAMPLES / other, project.parent / other, ignore=ignored)
    return project


@pytest.mark.drill
def test_lake_counts_and_profiles_are_those_of_the_raw_file(project: Path, java: Java) -> None:
    ended = subprocess.run(
        [sys.executable, str(project / "demo.py")],
        cwd=project.parent,
        capture_output=True,
        check=False,
        env=os.environ | quick_kafka(java),
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "They agree." in ended.stdout
    assert "They balance." in ended.stdout
    command = [sys.executable, "-m", "headrace.cli", "status", "--json"]
    answer = subprocess.run(command, cwd=project, capture_output=True, check=True).stdout
    status = json.loads(answer)
    assert not any(server["running"] for server in status["servers"])
    (dispatcher,) = status["dispatchers"]
    assert dispatcher["records"] == 287
