"""What a task must know to write files of a table, and what it reports about each file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from headrace.model import EventField
from headrace.sinks.lake.files.partitions import HiddenTimeKey, Partition, TimeKey, timestamp_text
from headrace.sinks.lake.layout import TableLayout, TimeUnit, UnsafeValues
from headrace.storage.files import Options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

_Removed = TypeVar("_Removed")


class FileForm(Protocol):
    """What a data file of a table holds, and what the table records of it; picklable."""

    def rows(self, rows: pa.Table, partition: Partition) -> pa.Table:
        """Returns what the file holds of the rows of a partition, which lack its columns."""

    def stats(
        self,
        footer: parquet.FileMetaData,
        times: Mapping[str, EventTimeRange],
        rows: pa.Table | None = None,
    ) -> str:
        """Returns what the table records of a file, as JSON.

        Args:
            footer: of the file.
            times: range of its timestamp columns, as far as it is known.
            rows: all of them; None: they are no longer at hand.
        """


@dataclass(frozen=True)
class DeltaFiles:
    """Files of a Delta table: the log alone has the values of its partition columns."""

    def rows(self, rows: pa.Table, partition: Partition) -> pa.Table:  # noqa: ARG002
        """See :meth:`FileForm.rows`."""
        return rows

    def stats(
        self,
        footer: parquet.FileMetaData,
        times: Mapping[str, EventTimeRange],
        rows: pa.Table | None = None,  # noqa: ARG002
    ) -> str:
        """See :meth:`FileForm.stats`."""
        return delta_stats(footer.num_rows, times)


@dataclass(frozen=True)
class WriteSpec:
    """A table to write to; picklable.

    Attributes:
        root: URI of the table (an absolute path, ``hdfs://...``, ``s3://...``).
        schema: columns of the rows.
        layout: partitions and files of the table.
        event_time: column of the event time, timestamp[us, UTC]; None: there is none.
        pipeline: that writes; the table records its columns. Empty: none are recorded.
        storage_options: of the storage, with credentials in plain text: not part of its repr.
        any_fields: by column, the fields of the event class that are or hold an ``Any``.
        files: what the data files hold.
    """

    root: str
    schema: pa.Schema
    layout: TableLayout
    event_time: str | None = None
    pipeline: str = ""
    storage_options: Options = field(default_factory=dict, repr=False)
    any_fields: Mapping[str, EventField] = field(default_factory=dict)
    files: FileForm = field(default_factory=DeltaFiles)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Partition columns of the table, outermost first."""
        return self.layout.partition_by

    @cached_property
    def time_key(self) -> TimeKey:
        """The event-time part of the partition."""
        units = tuple(unit for unit in TimeUnit if unit in self.layout.time_units)
        return HiddenTimeKey(units) if self.layout.hides_times else TimeKey(units)

    @property
    def rescues(self) -> bool:
        """Whether rows with unsafe partition values are kept in the table."""
        return self.layout.unsafe_values is UnsafeValues.RESCUE

    def has_ended(self, file: WrittenFile, watermark_us: int) -> bool:
        """Returns whether the newest time partition of ``file`` ends before ``watermark_us``."""
        newest = file.max_event_time_us
        return newest is not None and self.time_key.end_us(newest) <= watermark_us


@dataclass(frozen=True)
class EventTimeRange:
    """Range of the event times of some rows, microseconds since 1970; None: none has one."""

    lowest_us: int | None = None
    highest_us: int | None = None
    nulls: int = 0

    def __or__(self, other: EventTimeRange) -> EventTimeRange:
        """The range of both."""
        if self.lowest_us is None or self.highest_us is None:
            return EventTimeRange(other.lowest_us, other.highest_us, self.nulls + other.nulls)
        if other.lowest_us is None or other.highest_us is None:
            return EventTimeRange(self.lowest_us, self.highest_us, self.nulls + other.nulls)
        return EventTimeRange(
            min(self.lowest_us, other.lowest_us),
            max(self.highest_us, other.highest_us),
            self.nulls + other.nulls,
        )


@dataclass(frozen=True)
class WrittenFile:
    """A data file that waits for its commit.

    Attributes:
        path: below the table's root, as the file system knows it.
        size: bytes.
        rows: how many.
        partition_values: Delta's text of each partition column; None: null.
        stats: what the table records of its values, see :meth:`FileForm.stats`.
        min_event_time_us: microseconds since 1970; None: no row has an event time.
        max_event_time_us: microseconds since 1970; None: no row has an event time.
        keys: what rows are compared by, where the table is unique, as
            :func:`~headrace.sinks.lake.unique.row_keys.keys_text` writes it.
    """

    path: str
    size: int
    rows: int
    partition_values: Mapping[str, str | None]
    stats: str
    min_event_time_us: int | None = None
    max_event_time_us: int | None = None
    keys: str = field(default="", repr=False)

    @property
    def partition(self) -> Partition:
        """The partition that its rows belong to."""
        return Partition(tuple(self.partition_values.items()))

    def to_json(self) -> str:
        """One line of JSON, for a task's manifest."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> WrittenFile:
        """The file that :meth:`to_json` described."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class StoredFile:
    """A data file of a table.

    Attributes:
        path: below the table's root, as the file system knows it.
        size: bytes.
        partition: of its rows.
    """

    path: str
    size: int
    partition: Partition


@dataclass(frozen=True)
class FileSwap(Generic[_Removed]):
    """Files that a commit adds to a table, and those that it removes.

    Attributes:
        added: files to add.
        removed: files to remove; those of their rows that stay are in ``added``.
    """

    added: Sequence[WrittenFile]
    removed: Sequence[_Removed] = ()


def delta_stats(rows: int, times: Mapping[str, EventTimeRange]) -> str:
    """Delta's statistics of a file: its rows, and the range and nulls of timestamp columns."""
    lowest = {name: column_times.lowest_us for name, column_times in times.items()}
    highest = {name: column_times.highest_us for name, column_times in times.items()}
    return json.dumps(
        {
            "numRecords": rows,
            "minValues": _texts(lowest),
            "maxValues": _texts(highest),
            "nullCount": {name: column_times.nulls for name, column_times in times.items()},
        }
    )


def _texts(times_us: Mapping[str, int | None]) -> dict[str, str]:
    texts = {name: timestamp_text(us) for name, us in times_us.items() if us is not None}
    return {name: text for name, text in texts.items() if text is not None}
