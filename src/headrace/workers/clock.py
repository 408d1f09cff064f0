"""The time of day as an instance reads it. It is handed in, so that a test can move it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], int]
"""Returns milliseconds since 1970."""


def system_clock() -> int:
    """Returns the time of this machine, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
