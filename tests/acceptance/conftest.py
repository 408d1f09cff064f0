"""The demos of examples as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.quick_java import quick_kafka

from headrace.runtime.java import Java


@pytest.fixture
def program(project: Path) -> Path:
    """The demo of the test file's fixture ``project``."""
    return project / "demo.py"


@pytest.fixture
def demo(program: Path, java: Java) -> Iterator[subprocess.Popen[str]]:
    """The demo of the fixture ``program``, started in another folder."""
    process = subprocess.Popen(
        [sys.executable, str(program)],
        cwd="/",
        env=os.environ | quick_kafka(java),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    process.terminate()
    process.wait()
