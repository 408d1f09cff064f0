"""How the files of a table lie: its partitions, and what small files become."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from headrace.sinks.unique.declaration import Unique


class TimeUnit(enum.StrEnum):
    """Grain of a partition by event time, in UTC."""

    DAY = "day"
    HOUR = "hour"


class UnsafeValues(enum.StrEnum):
    r"""The destination of records whose partition value can't be a directory name.

    Unsafe: longer than 100 bytes of UTF-8, holding ``/``, ``\`` or a control character, ``.``
    or ``..``, or the name of the rescue partition itself. Null and empty values are safe: they are
    one partition, ``__HIVE_DEFAULT_PARTITION__``, and read back as null (Delta's rule).

    DEAD_LETTER: the record goes to the dead-letter topic.
    RESCUE: it lands in partition ``__unsafe__``; the value stays in column ``_rescued`` (JSON).
    """

    DEAD_LETTER = "dead-letter"
    RESCUE = "rescue"


@dataclass(frozen=True)
class TableLayout:
    """The layout that a :class:`~headrace.sinks.lake.declaration.Lake` declares; picklable.

    Attributes are those of ``Lake``, and ``hides_times``: partitions by time are no columns of the
    table, and ``partition_by`` has one of them at most.
    """

    partition_by: tuple[str, ...] = ()
    unsafe_values: UnsafeValues = UnsafeValues.DEAD_LETTER
    compact_files: int = 64
    compression: str = "zstd"
    unique: Unique | None = None
    hides_times: bool = False

    @property
    def time_units(self) -> tuple[TimeUnit, ...]:
        """The partitions taken from the event time."""
        return tuple(TimeUnit(name) for name in self.partition_by if name in set(TimeUnit))

    @property
    def value_columns(self) -> tuple[str, ...]:
        """The partitions taken from columns of the rows."""
        return tuple(name for name in self.partition_by if name not in set(TimeUnit))
