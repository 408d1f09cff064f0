"""Durations in whole units: a float of seconds is often a microsecond short."""

from __future__ import annotations

from datetime import timedelta


def microseconds(duration: timedelta) -> int:
    """Returns a duration in microseconds."""
    return duration // timedelta(microseconds=1)


def milliseconds(duration: timedelta) -> int:
    """Returns a duration in milliseconds, rounded down."""
    return duration // timedelta(milliseconds=1)
