"""The rows of some records in a table, beside those that were rewritten.

    rewritten       what the tasks have written, in files that no version of the table holds yet
    in the table    the rows of the same records, identified by :class:`RowIdentity`

Rows are compared whole, by two 64-bit hashes of all their columns. A row that is in the table as it
was rewritten stays where it is, as often as it was written. What is missing must be added, and
what is otherwise must be removed.

Of each file of the table, the columns of keys are read: those of places once, those of ids for each
comparison. Files that have some of the rows are read whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SinkError
from headrace.model import Metadata, OffsetRange
from headrace.sinks.lake.files.partitions import Partition

POSITION = (Metadata.TOPIC.value, Metadata.PARTITION.value, Metadata.OFFSET.value)
_SEEDS = (1, 2)
# Columns beside those of keys: no column of a table that headrace writes has a space in its name.
_FILE, _ROW, _COPY, _HASHES = "of file", "of row", "of copy", ("hash 1", "hash 2")
_START, _END = "range start", "range end"


@dataclass(frozen=True)
class RowIdentity:
    """How the rows of given records are found in a table.

    Attributes:
        event_id: path of the field with the event's id; None: rows have the place of their record,
            in columns ``_topic``, ``_partition`` and ``_offset``.
    """

    event_id: str | None = None

    @classmethod
    def of_rows(cls, schema: pa.Schema, event_id: str | None) -> RowIdentity:
        """Returns the places of records where rows have them, or else their ids."""
        return cls(None if set(schema.names) >= {*POSITION} else event_id)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table that they are in."""
        return POSITION if self.event_id is None else (self.event_id.partition(".")[0],)

    def of(self, rows: pa.Table) -> dict[str, pa.ChunkedArray]:
        """Returns the columns of keys, by names that polars takes for no patterns."""
        if self.event_id is None:
            return {name: rows.column(name) for name in POSITION}
        name, *inner = self.event_id.split(".")
        column = rows.column(name)
        return {"ID": (pc.struct_field(column, inner) if inner else column).cast(pa.string())}


class RowFile(Protocol):
    """A data file of the table, or a :class:`WrittenFile` that waits for its commit."""

    @property
    def path(self) -> str:
        """Returns its path, which no other file ever has."""

    @property
    def partition(self) -> Partition:
        """Returns the partition of its rows."""


class TableRows(Protocol):
    """Reads rows of a table's files."""

    @property
    def columns(self) -> pa.Schema:
        """Returns the columns of the table."""

    def of(self, file: RowFile, names: Sequence[str] | None = None) -> pa.Table:
        """Returns the rows of a file, in their order, partition columns included.

        Unsafe values of partitions are as they came. ``names`` are columns, by default all.
        """

    def stored(self, file: RowFile) -> pa.Table:
        """Returns the rows of a file, in their order, as another file would hold them."""


@dataclass(frozen=True)
class Differences:
    """Numbers of files and rows: of what was rewritten and is missing, of what must go."""

    missing: Mapping[int, Sequence[int]]
    wrong: Mapping[int, Sequence[int]]
    kept: int

    def figures(self) -> dict[str, int]:
        """Returns how many rows a commit adds, removes and leaves as they are."""
        return {
            "rows_added": sum(map(len, self.missing.values())),
            "rows_removed": sum(map(len, self.wrong.values())),
            "rows_kept": self.kept,
        }


class RowComparison:
    """The rows of some records: those that were rewritten beside those of the table."""

    def __init__(self, keys: RowIdentity, ranges: Sequence[OffsetRange], rows: TableRows) -> None:
        self._keys, self._rows = keys, rows
        self._ranges = pl.DataFrame(
            [
                (range_.partition.topic, range_.partition.partition, range_.start, range_.end)
                for range_ in ranges
            ],
            schema={
                POSITION[0]: pl.String,
                POSITION[1]: pl.Int64,
                _START: pl.Int64,
                _END: pl.Int64,
            },
            orient="row",
        )

    def written(self, files: Sequence[RowFile]) -> pl.DataFrame:
        """Returns the index of rows that were rewritten."""
        return self._concatenated([self._index(n, self._rows.of(f)) for n, f in enumerate(files)])

    def at_positions(
        self, files: Sequence[RowFile], bounds: dict[str, pl.DataFrame]
    ) -> pl.DataFrame:
        """Returns the index of the table's rows of the records, by their places.

        ``bounds`` keeps by path what places a file has, since files never change.
        """
        parts = []
        for number, file in enumerate(files):
            if file.path not in bounds:
                places = pl.DataFrame(self._rows.of(file, POSITION).select(POSITION))
                places = places.with_columns(pl.col(*POSITION[1:]).cast(pl.Int64))
                offset = pl.col(POSITION[2])
                bounds[file.path] = places.group_by(*POSITION[:2]).agg(
                    offset.min().alias("FIRST"),
                    offset.max().alias("LAST"),
                    offset.null_count().alias("NULLS"),
                )
            if self._overlaps(bounds[file.path]):
                index = self._index(number, self._rows.of(file))
                placed = index.join(self._ranges, on=list(POSITION[:2]))
                offset = pl.col(POSITION[2])
                inside = placed.filter((offset >= pl.col(_START)) & (offset < pl.col(_END)))
                parts.append(inside.select(index.columns))
        return self._concatenated(parts)

    def with_ids(self, files: Sequence[RowFile], ids: pl.DataFrame) -> pl.DataFrame:
        """Returns the index of the table's rows with the keys of ``ids``, another index.

        They may be in any file: what a row is found by must not be what its correction changes,
        such as the event time.
        """
        names = list(ids.columns[: len(self._keys.columns)])
        known = ids.select(names).unique()
        parts = []
        for number, file in enumerate(files):
            keys = pl.DataFrame(pa.table(self._keys.of(self._rows.of(file, self._keys.columns))))
            if not keys.join(known, on=names, how="semi", nulls_equal=True).is_empty():
                index = self._index(number, self._rows.of(file))
                parts.append(index.join(known, on=names, how="semi", nulls_equal=True))
        return self._concatenated(parts)

    def differences(self, written: pl.DataFrame, present: pl.DataFrame) -> Differences:
        """Compares two indices."""
        names = list(written.columns[: len(self._keys.columns)])
        whole = [*names, *_HASHES]
        # Equal rows are distinguished by counting them: of two, one can be missing.
        copies = pl.int_range(pl.len()).over(whole).alias(_COPY)
        written, present = written.with_columns(copies), present.with_columns(copies)
        same = [*whole, _COPY]
        missing = written.join(present, on=same, how="anti", nulls_equal=True)
        wrong = present.join(written, on=same, how="anti", nulls_equal=True)
        if self._keys.event_id is not None:
            self._refuse_without_id(missing)
            # As many rows of an id as are missing of it: others are of other records.
            counts = missing.group_by(names).agg(pl.len().alias("LIMIT"))
            numbered = wrong.sort(_FILE, _ROW).with_columns(
                pl.int_range(pl.len()).over(names).alias("NTH")
            )
            wrong = numbered.join(counts, on=names).filter(pl.col("NTH") < pl.col("LIMIT"))
        return Differences(_by_file(missing), _by_file(wrong), len(written) - len(missing))

    def _refuse_without_id(self, missing: pl.DataFrame) -> None:
        """Refuses rows without an id: it is not known which rows they would replace."""
        if number := missing[:, 0].null_count():
            reason = (
                f"{number} of the rows that it lacks have no {self._keys.event_id!r}, by which "
                "their older rows would be found; reprocess times without such events, or begin "
                f"another table with the columns {', '.join(POSITION)}"
            )
            raise SinkError("table", reason)

    def _concatenated(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat(parts) if parts else self._index(0, self._rows.columns.empty_table())

    def _index(self, number: int, rows: pa.Table) -> pl.DataFrame:
        # Sorted: files of a table can have their columns in another order.
        columns = {name: _flat(rows[name]) for name in sorted(rows.column_names)}
        frame = pl.DataFrame(pa.table(columns))
        index = pl.DataFrame(pa.table(self._keys.of(rows)))
        if self._keys.event_id is None:
            index = index.with_columns(pl.col(*POSITION[1:]).cast(pl.Int64))
        hashes = [
            frame.hash_rows(seed).alias(name) for seed, name in zip(_SEEDS, _HASHES, strict=True)
        ]
        return index.with_columns(
            *hashes,
            pl.lit(number, pl.Int64).alias(_FILE),
            pl.int_range(pl.len(), dtype=pl.Int64).alias(_ROW),
        )

    def _overlaps(self, bounds: pl.DataFrame) -> bool:
        if bounds["NULLS"].sum():
            reason = f"it has rows without {', '.join(POSITION)}, from before it had these columns"
            raise SinkError("table", reason)
        both = self._ranges.join(bounds, on=list(POSITION[:2]))
        return not both.filter(
            (pl.col("FIRST") < pl.col(_END)) & (pl.col("LAST") >= pl.col(_START))
        ).is_empty()


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_nested(column.type):
        texts = [
            None if value is None else msgspec.json.encode(value, enc_hook=str)
            for value in column.to_pylist()
        ]
        return pa.array(texts, pa.binary())
    return column.cast(pa.string()) if pa.types.is_decimal(column.type) else column


def _by_file(rows: pl.DataFrame) -> dict[int, list[int]]:
    grouped = rows.group_by(_FILE).agg(pl.col(_ROW).sort()).sort(_FILE)
    return dict(zip(grouped[_FILE].to_list(), grouped[_ROW].to_list(), strict=True))
