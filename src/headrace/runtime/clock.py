"""The time of day. Where a test moves it, the function is handed in as a :data:`Clock`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], int]
"""Returns milliseconds since 1970."""


def now_in_ms() -> int:
    """Returns the time of this machine, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def use_utc() -> None:
    """Makes UTC the local time of this process, and of those that it starts.

    The project's functions see the same times on every machine then, whatever ``TZ`` was: Python
    takes a time without a zone for local time, and so does Spark between Python and its own rows.
    """
    os.environ["TZ"] = "UTC"
    time.tzset()
