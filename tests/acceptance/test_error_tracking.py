"""`make demo-errors`: all that was accepted is where it belongs, once, and nothing runs on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.runtime.ports import free_ports

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "error_tracking"
PORT = "port = 8317"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy on a port of its own, so that a demo that somebody looks at is left alone."""
    ignored = shutil.ignore_patterns(".headrace", "__pycache__")
    folder = shutil.copytree(EXAMPLE, tmp_path / "error_tracking", ignore=ignored)
    settings = folder / "headrace.toml"
    text = settings.read_text()
    assert PORT in text
    settings.write_text(text.replace(PORT, f"port = {free_ports(1)[0]}"))
    return folder


@pytest.mark.drill
def test_it_ends_with_0_when_every_sum_is_right(demo: subprocess.Popen[str], project: Path) -> None:
    told, _ = demo.communicate()
    assert demo.returncode == 0, told
    for line in (
        "an invalid event in a batch: unknown-value: field 'level'",
        "429, Retry-After",
        "1198 loaded, 0 done before, dead letters: 1 bad-zlib, 1 bad-base64",
        "0 loaded, 1200 done before, dead letters: none",
        "All sums are right.",
    ):
        assert line in told
    command = [str(Path(sys.executable).with_name("headrace")), "status", "--json"]
    status = subprocess.run(command, cwd=project, stdout=subprocess.PIPE, check=True).stdout
    assert [one["name"] for one in json.loads(status)["servers"] if one["running"]] == []


def test_what_is_there_twice_or_not_at_all_is_no_right_sum() -> None:
    code = "import proof; one = proof.Sum('', [1, 1, 2], [1, 2, 3]); print(one.missing, one.extra)"
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, cwd=EXAMPLE, stdout=subprocess.PIPE, check=True, text=True)
    assert told.stdout == "1 1\n"
