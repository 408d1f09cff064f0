"""The benchmarks of event flow run whole in their quick form, and find headrace's output right."""

import subprocess
import sys
from pathlib import Path

import pytest
from bench.flow.__main__ import PARTS
from bench.results import RESULTS

ROOT = Path(__file__).resolve().parents[2]
EVENTS = 40_000  # of join-latency, those of 20 s: longer than a start on a busy machine takes
TIMEOUT_SECONDS = 600


@pytest.mark.drill
@pytest.mark.timeout(3500)
def test_quick_runs_measure_every_way_of_headrace_and_keep_nothing(drill_run):
    """``bench.flow`` ends with 1 where a system fails, or has written a row too few or too many."""
    parts = [*PARTS][: drill_run.size(short=1, long=len(PARTS))]
    for part in parts:
        assert_quick_run(part)
    drill_run.report(parts=parts)


def assert_quick_run(part):
    kept = RESULTS.read_bytes()
    ours = [name for name in PARTS[part](1).systems if name.startswith("headrace")]
    command = [sys.executable, "-m", "bench.flow", part, "--quick", "--events", str(EVENTS)]
    done = subprocess.run(
        [*command, "--systems", *ours],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("│") and " 2 │" in line]
    assert len(rows) == len(ours)
    assert RESULTS.read_bytes() == kept
