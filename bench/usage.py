"""Ends trees of processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from headrace.runtime.process_tree import SAMPLE_SECONDS, processes, tree


def end_tree(root: int, grace_seconds: float) -> None:
    """Ends a tree: SIGTERM to its root, on which the rest ends, SIGKILL to what has not in time."""
    found = tree(root, processes())
    _signal(root, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while running := [one for one in tree(root, processes(), found) if not one.ended]:
        if time.monotonic() > deadline:
            for one in running:
                _signal(one.pid, signal.SIGKILL)
        found = running
        time.sleep(SAMPLE_SECONDS)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
