"""`make demo-errors`: all that was accepted is where it belongs, once, and nothing runs on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.acceptance.examples import Import, left_running

from headrace.runtime.servers.ports import free_ports

EXAMPLE = "error_tracking"
PORT = "port = 8317"


@pytest.fixture
def project(project: Path) -> Path:
    """A copy of the example, on a port of its own."""
    settings = project / "headrace.toml"
    text = settings.read_text()
    assert PORT in text
    settings.write_text(text.replace(PORT, f"port = {free_ports(1)[0]}"))
    return project


@pytest.mark.drill
def test_it_ends_with_0_when_every_sum_is_right(demo: subprocess.Popen[str], project: Path) -> None:
    output, _ = demo.communicate()
    assert demo.returncode == 0, output
    for line in (
        "an invalid event in a batch: unknown-value: field 'level'",
        "429, Retry-After",
        "1198 loaded, 0 done before, dead letters: 1 bad-zlib, 1 bad-base64",
        "0 loaded, 1200 done before, dead letters: none",
        "All sums are right.",
    ):
        assert line in output
    assert left_running(project) == []


def test_what_is_there_twice_or_not_at_all_is_no_right_sum(module: Import) -> None:
    total = module("proof").Sum("", [1, 1, 2], [1, 2, 3])
    assert (total.missing, total.extra) == (1, 1)
