"""Single times and dates: RFC 3339 texts and microseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
EARLIEST_US = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
LATEST_US = (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC) - _EPOCH) // _MICROSECOND

# Python reads more than RFC 3339 has: weeks, times without seconds or zone, a comma.
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])"
)
# Python also reads dates without hyphens, and weeks.
_FULL_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def parse_time(text: str) -> datetime | None:
    """An RFC 3339 time; ``None`` if it is none, or a leap second.

    A space may stand for the T, and the colon of the zone may be left out.
    """
    if not _RFC3339.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError:
        return None


def microseconds(text: str) -> int | None:
    """Microseconds since 1970 of what :func:`parse_time` takes."""
    time = parse_time(text)
    return None if time is None else microseconds_since_1970(time)


def microseconds_since_1970(time: datetime) -> int:
    """Returns a time with a zone as a number."""
    # Not timestamp(): a double has not the digits for microseconds of far years.
    return (time - _EPOCH) // _MICROSECOND


def readable_microseconds(text: str) -> int | None:
    """Microseconds since 1970 of a time within the years 1 to 9999 of UTC; ``None`` of others."""
    # A zone may move a time of the year 9999 beyond it.
    micros = microseconds(text)
    return micros if micros is not None and EARLIEST_US <= micros <= LATEST_US else None


def parse_date(text: str) -> date | None:
    """A date as ``YYYY-MM-DD``, from the year 1; ``None`` of any other text."""
    if not _FULL_DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def iso_text(micros: int) -> str:
    """Microseconds since 1970 in ISO 8601; beyond the years 1 to 9999, their nearest end."""
    within = min(max(micros, EARLIEST_US), LATEST_US)
    return (_EPOCH + timedelta(microseconds=within)).isoformat()


def iso_milliseconds(time: datetime) -> str:
    """Returns a time with a zone in ISO 8601, in UTC and to the millisecond."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
