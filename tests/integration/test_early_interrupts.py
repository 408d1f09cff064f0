"""Ctrl-C while a command is being imported, at a chosen import of a real process."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

INTERRUPTS = """
import os, signal, sys


class Interrupts:
    def find_spec(self, name, *_):
        if name == os.environ["INTERRUPTED_AT"]:
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Interrupts())
"""
PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
SCRIPT = PYPROJECT["project"]["scripts"]["headrace"].partition(":")
# What an installer writes into the script of an entry point.
INSTALLED = f"import sys; from {SCRIPT[0]} import {SCRIPT[2]}; sys.exit({SCRIPT[2]}())"


@pytest.mark.parametrize("start", [("-c", INSTALLED), ("-m", "headrace")], ids=["script", "module"])
@pytest.mark.parametrize(
    "module",
    [
        "headrace.cli",
        "click",
        "headrace.cli.session",
        "headrace.operations.commands",
        "headrace.operations.views",
        "headrace.project.check",
    ],
)
def test_an_interrupt_at_any_import_ends_a_command_without_a_traceback(tmp_path, start, module):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)
    (tmp_path / "headrace.toml").write_text('[project]\nname = "shop"\nmodules = []\n')
    environ = os.environ | {
        "INTERRUPTED_AT": module,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
    }
    command = [sys.executable, *start, "check", "--project", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
