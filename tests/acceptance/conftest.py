"""The examples of test files that name one, ``EXAMPLE``: copies, modules, demos as processes."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.acceptance.examples import EXAMPLES, Import
from tests.quick_java import quick_kafka

from headrace.runtime.java.installation import Java


@pytest.fixture
def example(request: pytest.FixtureRequest) -> Path:
    """The folder of the example that the test file names."""
    folder: Path = EXAMPLES / request.module.EXAMPLE
    return folder


@pytest.fixture
def project(example: Path, tmp_path: Path) -> Path:
    """A copy of the example, so that a demo that a user looks at is left alone."""
    ignored = shutil.ignore_patterns(".headrace", ".sites", "__pycache__")
    return shutil.copytree(example, tmp_path / example.name, ignore=ignored)


@pytest.fixture
def module(example: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """Imports a module of the example; other examples have modules of the same names."""
    names = [file.stem for file in example.glob("*.py")]
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(example)
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def program(project: Path) -> Path:
    """The demo of the fixture ``project``."""
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
