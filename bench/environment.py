"""Environments of rivals in Python, which may need other versions than headrace."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

from bench.driver import SystemFailedError


def python_of(home: Path, requirements: Path, *options: str) -> Path:
    """The interpreter of an environment at ``home`` with these requirements; recreated for others.

    ``options`` are pip's.

    Raises:
        SystemFailedError: they could not be installed; what pip said.
    """
    python, installed = home / "bin/python", home / "requirements.txt"
    if not installed.exists() or installed.read_text() != requirements.read_text():
        venv.create(home, clear=True, symlinks=True, with_pip=True)
        _install(python, requirements, *options)
        installed.write_text(requirements.read_text())
    return python


def _install(python: Path, requirements: Path, *options: str) -> None:
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, *options, "--requirement", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemFailedError(f"{' '.join(command)} failed: {done.stderr.strip()[-2000:]}")
