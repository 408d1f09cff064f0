"""Single times and dates: RFC 3339 texts and microseconds since 1970."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import msgspec

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Record = TypeVar("Record", bound=DataclassInstance)

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

TimeUs: TypeAlias = Annotated[int, msgspec.Meta(ge=EARLIEST_US, le=LATEST_US)]
"""Microseconds since 1970, within the years 1 to 9999: what a record may have for a time."""
TimeMs: TypeAlias = Annotated[int, msgspec.Meta(ge=EARLIEST_US // 1000, le=LATEST_US // 1000)]
"""Milliseconds since 1970, within the years 1 to 9999: what a record may have for a time."""


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


def milliseconds_since_1970(time: datetime) -> int:
    """Returns a time with a zone as the timestamp of the first record that is not older."""
    return -(-microseconds_since_1970(time) // 1000)


def readable_microseconds(text: str) -> int | None:
    """Microseconds since 1970 of a time within the years 1 to 9999 of UTC; ``None`` of others."""
    # A zone may move a time of the year 9999 beyond it.
    micros = microseconds(text)
    return micros if micros is not None and EARLIEST_US <= micros <= LATEST_US else None


def in_utc(time: datetime) -> datetime:
    """Returns a time with a zone in UTC.

    Raises:
        ValueError: if it has no zone, or is beyond the years 1 to 9999 of UTC.
    """
    if time.tzinfo is None:
        raise ValueError(f"{time.isoformat()} has no time zone")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        reason = f"{time.isoformat()} is beyond the years 1 to 9999 of UTC"
        raise ValueError(reason) from None


def with_times_in_utc(record: Record) -> Record:
    """Returns a decoded dataclass with its times in UTC.

    Raises:
        ValueError: if a time has no zone, or is beyond the years 1 to 9999 of UTC. The message
            names the field.
    """
    changed = {}
    for field in fields(record):
        time = getattr(record, field.name)
        if isinstance(time, datetime) and time.tzinfo is not UTC:
            try:
                changed[field.name] = in_utc(time)
            except ValueError as error:
                raise ValueError(f"{field.name}: {error}") from None
    return replace(record, **changed) if changed else record


def parse_date(text: str) -> date | None:
    """A date as ``YYYY-MM-DD``, from the year 1; ``None`` of any other text."""
    if not _FULL_DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def time_of(micros: int) -> datetime:
    """Returns microseconds since 1970 in UTC; beyond the years 1 to 9999, their nearest end."""
    # Not fromtimestamp(): a double has not the digits for microseconds of far years.
    return _EPOCH + timedelta(microseconds=min(max(micros, EARLIEST_US), LATEST_US))


def earlier(time: datetime, by: timedelta) -> datetime:
    """Returns the time that lies ``by`` before ``time``, in UTC; at the earliest the year 1."""
    return time_of(microseconds_since_1970(time) - by // _MICROSECOND)


def iso_text(micros: int) -> str:
    """Microseconds since 1970 in ISO 8601; beyond the years 1 to 9999, their nearest end."""
    return time_of(micros).isoformat()


@lru_cache(maxsize=1_000)
def utc_time_text(text: str) -> str:
    """Returns an RFC 3339 time as headrace writes times in records: in UTC, with a Z.

    Raises:
        ValueError: if it is no time with a zone within the years 1 to 9999 of UTC.
    """
    micros = readable_microseconds(text)
    if micros is None:
        expected = "expected a time with a time zone, within the years 1 to 9999 of UTC"
        raise ValueError(f"{text!r:.100}, {expected}")
    return iso_text(micros).replace("+00:00", "Z")


def iso_milliseconds(time: datetime) -> str:
    """Returns a time with a zone in ISO 8601, in UTC and to the millisecond."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
