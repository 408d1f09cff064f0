"""Quix Streams' count: its tumbling window, a process a core."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from bench.driver import OnCommit, WriteOnce
from bench.peers.record.python_programs import running_programs
from bench.setup import Setup
from bench.windowed_count.counts import follow_counts
from bench.windowed_count.traffic import ALLOWED_LATENESS, WINDOW

PROGRAM = Path(__file__).with_name("quix_program.py")
PRODUCER = {"compression.type": "lz4", "linger.ms": 20}
SETTINGS = {name: str(value) for name, value in PRODUCER.items()}
_MS = timedelta(milliseconds=1)


def open_counts(setup: Setup, *, python: Path, results: int) -> WriteOnce:
    """The function returned runs one application over the whole topic."""

    def count_once(out: Path, on_commit: OnCommit) -> None:
        arguments = json.dumps(_arguments(setup, out))
        with running_programs([str(python), str(PROGRAM), arguments], setup.threads) as check:
            follow_counts(setup, out.name, results, on_commit, check)

    return count_once


def _arguments(setup: Setup, out: Path) -> dict[str, object]:
    return {
        "names": {
            "bootstrap": setup.bootstrap,
            "group": out.name,
            "state": str(out / "state"),
            "events": setup.topic,
            "counts": out.name,
        },
        "window_ms": WINDOW // _MS,
        "grace_ms": ALLOWED_LATENESS // _MS,
        "producer": PRODUCER,
    }
