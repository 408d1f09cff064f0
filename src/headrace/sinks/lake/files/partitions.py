"""From values to partitions: what the Delta log says, and which folder holds the files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

from headrace.model.partition_value import (
    NULL_PARTITION,
    RESCUE_PARTITION,
    RESCUED_COLUMN,
    unsafe_partition_value,
)
from headrace.sinks.lake.layout import TimeUnit

if TYPE_CHECKING:
    import pyarrow as pa

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
_MAX_FOLDER_BYTES = 255  # one path component, on ext4 and HDFS alike
# Hive's set, and the semicolon, at which the HDFS client's paths end as URLs do.
_ESCAPED = frozenset("\"#%'*/:;=?\\{[]^\x7f") | {chr(code) for code in range(32)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Partition:
    """Partition columns, outermost first, with their text in the Delta log (None: null)."""

    values: tuple[tuple[str, str | None], ...]

    @cached_property
    def folder(self) -> str:
        """Path below the table's root: ``day=2019-11-24/hour=7/campaign=all``; may be empty."""
        return "/".join(_folder(column, text) for column, text in self.values)


@dataclass(frozen=True)
class TimeKey:
    """The event-time part of a partition as one integer, so that grouping by it is cheap.

    ``units`` hour and day: hours since 1970; day alone: days since 1970; hour alone: hour of day.
    """

    units: tuple[TimeUnit, ...]

    @property
    def grain_us(self) -> int:
        """Microseconds a key spans."""
        return HOUR_US if TimeUnit.HOUR in self.units else DAY_US

    @property
    def wraps(self) -> bool:
        """Whether the key is the hour of the day, without a day."""
        return self.units == (TimeUnit.HOUR,)

    def texts(self, key: int | None) -> dict[str, str | None]:
        """Delta's text of each time column for ``key``; null when no calendar holds it."""
        time = None if key is None else _utc(key * self.grain_us)
        if time is None:
            return dict.fromkeys(self.units)
        texts: dict[str, str | None] = {"day": time.date().isoformat(), "hour": str(time.hour)}
        return {unit: texts[unit] for unit in self.units}

    def end_us(self, event_time_us: int) -> int:
        """When the partition of ``event_time_us`` is over; without time columns, right after it."""
        if not self.units:
            return event_time_us + 1
        return (event_time_us // self.grain_us + 1) * self.grain_us


@dataclass(frozen=True)
class HiddenTimeKey(TimeKey):
    """The event-time part of a partition that is no column: days, or hours, since 1970.

    ``units`` is one unit at most.
    """

    @property
    def wraps(self) -> bool:
        """Returns False: an hour is one of a certain day."""
        return False

    def texts(self, key: int | None) -> dict[str, str | None]:
        """The name of the day or hour: ``2019-11-24-07``; null when no calendar holds it."""
        time = None if key is None else _utc(key * self.grain_us)
        form = "%Y-%m-%d-%H" if TimeUnit.HOUR in self.units else "%Y-%m-%d"
        return dict.fromkeys(self.units, None if time is None else time.strftime(form))


def partition_text(value: object) -> str | None:
    """Delta's text of a partition value: null and empty are null."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)


def timestamp_text(time_us: int) -> str | None:
    """Delta's text of a time, for statistics; None outside the years 1 to 9999."""
    time = _utc(time_us)
    if time is None:
        return None
    return time.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _utc(time_us: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return None


def unsafe_values(values: Mapping[str, object]) -> dict[str, str]:
    """Column to reason, for each of ``values`` that can't name a directory."""
    reasons = {
        column: unsafe_partition_value(value)
        for column, value in values.items()
        if isinstance(value, str)
    }
    return {column: reason for column, reason in reasons.items() if reason is not None}


def rescue(values: Mapping[str, object], unsafe: Sequence[str]) -> tuple[dict[str, object], str]:
    """``values`` with the unsafe ones sent home, and JSON of what they were."""
    kept = {column: values[column] for column in unsafe}
    return {**values, **dict.fromkeys(unsafe, RESCUE_PARTITION)}, json.dumps(
        kept, ensure_ascii=False
    )


def with_partition_values(rows: pa.Table, partition: Mapping[str, str | None]) -> pa.Table:
    """Returns the rows of a file with its partition columns, as texts: unsafe ones as they came.

    Args:
        rows: with column ``_rescued`` if the file has it.
        partition: Delta's text of each partition column; None and empty: null.
    """
    import pyarrow as pa

    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    for name, text in partition.items():
        columns[name] = pa.repeat(pa.scalar(text or None, pa.string()), rows.num_rows)
    return with_rescued_values(pa.table(columns), partition)


def with_rescued_values(rows: pa.Table, partition_columns: Iterable[str]) -> pa.Table:
    """Returns rows of a table with unsafe values as they came, if they have column ``_rescued``."""
    import pyarrow as pa

    if RESCUED_COLUMN not in rows.column_names:
        return rows
    rescued = rows[RESCUED_COLUMN]
    for name in partition_columns if rescued.null_count < len(rescued) else ():
        values = [
            json.loads(text or "{}").get(name, value) if value == RESCUE_PARTITION else value
            for value, text in zip(rows[name].to_pylist(), rescued.to_pylist(), strict=True)
        ]
        index = rows.column_names.index(name)
        rows = rows.set_column(index, name, pa.array(values, rows[name].type))
    return rows


def _folder(column: str, text: str | None) -> str:
    name = f"{_escaped(column)}={NULL_PARTITION if text is None else _escaped(text)}"
    encoded = name.encode()
    if len(encoded) <= _MAX_FOLDER_BYTES:
        return name
    # The folder's name is for people and for listing: readers take the value from the log.
    digest = sha256(encoded).hexdigest()[:16]
    return f"{encoded[: _MAX_FOLDER_BYTES - 17].decode(errors='ignore')}~{digest}"


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)
