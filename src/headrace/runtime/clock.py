"""The time of day. Where a test moves it, the function is handed in as a :data:`Clock`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], int]
"""Returns milliseconds since 1970."""


def now_in_ms() -> int:
    """Returns the time of this machine, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
