"""Splitting a chunk of rows into one piece per partition, with one gather for the whole chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sinks.lake.files.data_file import EventTimeRange
from headrace.sinks.lake.files.partitions import TimeKey

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

_TIME_KEY, _ROWS = "_headrace_time_key", "_headrace_rows"
_LOWEST, _HIGHEST, _NULLS = "_headrace_lowest", "_headrace_highest", "_headrace_nulls"


@dataclass(frozen=True)
class PartitionRows:
    """Rows of a chunk that share a partition.

    ``values`` are those of the value columns, which ``rows`` lacks; ``size`` is in bytes.
    """

    time_key: int | None
    values: tuple[object, ...]
    rows: pa.Table
    size: int
    times: EventTimeRange


@dataclass(frozen=True)
class Grouping:
    """What to group by.

    Attributes:
        event_time: column of the event time, timestamp[us, UTC]; None: there is none.
        time_key: the event-time part of the partition.
        values: value columns, outermost first.
    """

    event_time: str | None
    time_key: TimeKey
    values: tuple[str, ...]

    def split(self, rows: pa.Table) -> Iterator[PartitionRows]:
        """The groups of ``rows``, each with its rows in their order."""
        if not rows.num_rows:
            return
        groups = self._groups(rows)
        gathered, size = _gather(rows.drop_columns(list(self.values)), groups[_ROWS])
        begin = 0
        for group in groups.with_columns(groups[_ROWS].list.len()).iter_rows(named=True):
            length = group[_ROWS]
            piece = gathered.slice(begin, length)
            yield PartitionRows(
                time_key=group[_TIME_KEY],
                values=tuple(group[name] for name in self.values),
                rows=piece,
                size=size * length // rows.num_rows,
                times=EventTimeRange(group[_LOWEST], group[_HIGHEST], group[_NULLS]),
            )
            begin += length

    def _groups(self, rows: pa.Table) -> pl.DataFrame:
        import polars as pl

        columns = ([self.event_time] if self.event_time else []) + list(self.values)
        numbered = pl.select(pl.int_range(rows.num_rows, dtype=pl.UInt32).alias(_ROWS))
        keyed = numbered.with_columns(pl.DataFrame(rows.select(columns)).get_columns())
        values = map(_column, self.values)
        time = self._time_us()
        return keyed.group_by(self._time_key(), *values).agg(
            _ROWS,
            time.min().alias(_LOWEST),
            time.max().alias(_HIGHEST),
            time.null_count().alias(_NULLS),
        )

    def _time_us(self) -> pl.Expr:
        import polars as pl

        if self.event_time is None:
            return pl.lit(None, pl.Int64)
        return _column(self.event_time).cast(pl.Datetime("us", "UTC")).to_physical()

    def _time_key(self) -> pl.Expr:
        import polars as pl

        if not self.time_key.units:
            return pl.lit(0).alias(_TIME_KEY)
        # Whole numbers of microseconds: rounding down also holds before 1970, as it does for `//`.
        key = self._time_us() // self.time_key.grain_us
        return (key % 24 if self.time_key.wraps else key).alias(_TIME_KEY)


def _column(name: str) -> pl.Expr:
    """Returns a column by its name, where ``pl.col`` takes ``*`` and ``^a$`` for patterns."""
    from polars import selectors

    return selectors.by_name(name).as_expr()


def _gather(rows: pa.Table, groups: pl.Series) -> tuple[pa.Table, int]:
    """``rows`` in the order of ``groups`` (lists of row numbers), and their size in bytes.

    polars gathers text without copying it, which halves the cost; pyarrow keeps nested types.
    """
    import polars as pl

    if any(_only_arrow_has(field.type) for field in rows.schema):
        return _gathered_by_arrow(rows, groups)
    frame = pl.DataFrame(rows)
    ordered = frame if len(groups) == 1 else frame[groups.explode()]
    view = pl.CompatLevel.newest()
    return ordered.to_arrow(compat_level=view), max(1, int(ordered.estimated_size()))


def _gathered_by_arrow(rows: pa.Table, groups: pl.Series) -> tuple[pa.Table, int]:
    # `take` of pyarrow has no kernel for views.
    plain = rows.cast(_without_views(rows.schema))
    ordered = plain if len(groups) == 1 else plain.take(groups.explode().to_arrow())
    return ordered, max(1, ordered.nbytes)


def _only_arrow_has(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_nested(kind) or types.is_decimal(kind))


def _without_views(schema: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([field.with_type(plain.get(field.type, field.type)) for field in schema])
