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
def demo(project: Path, java: Java) -> Iterator[subprocess.Popen[str]]:
    """The demo of the test file's fixture ``project``, begun in another folder."""
    command = [sys.executable, str(project / "demo.py")]
    process = subprocess.Popen(
        command,
        cwd="/",
        env=os.environ | quick_kafka(java),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    process.terminate()
    process.wait()
