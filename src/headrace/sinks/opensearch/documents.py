"""Rows as documents: lines of a bulk, each an action and what is stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headrace.model import EventField, Metadata
from headrace.sinks.api import RejectedRow
from headrace.sinks.arrow_types import is_point_in_time, is_text
from headrace.sinks.opensearch.index_name import IndexBy
from headrace.sinks.opensearch.json_rows import (
    faults,
    json_texts,
    plain_texts,
)

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from numpy.typing import NDArray

TIMESTAMP = "@timestamp"
"""Field of the event time in a data stream."""
PLACE = (Metadata.TOPIC_ID.value, Metadata.PARTITION.value, Metadata.OFFSET.value)
# OpenSearch refuses longer ids, and a request with an empty one.
_MAX_ID_BYTES = 512
_ROW, _ID, _INDEX, _TIME, _VERSION, _LINE = "row", "id", "index", "time", "version", "line"


def is_version(kind: pa.DataType) -> bool:
    """Whether a version can be the value of a column."""
    from pyarrow import types

    return bool(types.is_integer(kind)) or is_point_in_time(kind)


def is_of_id(kind: pa.DataType) -> bool:
    """Whether an id can have the value of a column: as a text that no other value has."""
    from pyarrow import types

    return is_version(kind) or is_text(kind) or bool(types.is_date32(kind))


@dataclass(frozen=True)
class DocumentSpec:
    """How rows become documents; picklable.

    Attributes:
        index: name of the index, or what precedes the time in the names of several.
        index_by: by what time they are divided; None: there is one.
        event_time: column of the event time, where there are several, or a data stream.
        key: columns of the id; empty: the place of the record.
        newest_by: of UPSERT, the column that is the version; None: documents are created.
        any_fields: by column, the fields that are or hold an ``Any``.
        is_data_stream: whether documents have the event time in ``@timestamp``, too.
    """

    index: str
    index_by: IndexBy | None
    event_time: str | None
    key: tuple[str, ...]
    newest_by: str | None
    any_fields: Mapping[str, EventField] = field(default_factory=dict)
    is_data_stream: bool = False

    @property
    def has_one_index(self) -> bool:
        """Whether all documents are in one index, for ever."""
        return self.index_by is None and not self.is_data_stream


@dataclass(frozen=True)
class Documents:
    """What becomes of rows.

    Attributes:
        lines: of a bulk, two for each document; they end with a line end.
        rows: place of each document's row.
        rejected: rows that are no documents.
        left_out: how many rows are left out for another one with their id.
        indices: where they go.
    """

    lines: pl.Series
    rows: NDArray[np.int64]
    rejected: list[RejectedRow]
    left_out: int
    indices: list[str]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each document in a bulk."""
        sizes: NDArray[np.int64] = self.lines.str.len_bytes().to_numpy().astype(np.int64)
        return sizes

    def body(self, places: NDArray[np.int64]) -> bytes:
        """Returns a bulk of some of the documents."""
        body: str = self.lines.gather(places).str.join("").item()
        return body.encode()


def documents_of(rows: pa.Table, spec: DocumentSpec) -> Documents:
    """Returns the documents of rows."""
    import polars as pl

    rejected = {
        row: RejectedRow(row, "wrong-value", detail)
        for row, detail in faults(rows, spec.any_fields).items()
    }
    frame = _identified(rows, spec)
    for reason in _rejections(frame, rows, spec):
        rejected.setdefault(reason.index, reason)
    if rejected:
        frame = frame.filter(~pl.col(_ROW).is_in(list(rejected)))
        rows = rows.take(frame[_ROW].to_numpy())
    if spec.is_data_stream:
        rows = rows.append_column(TIMESTAMP, rows[spec.event_time])
    frame = frame.with_columns(json_texts(rows, spec.any_fields).alias(_LINE))
    taken = _distinct(frame, spec)
    lines = taken.select(pl.concat_str(_action(spec), pl.lit("\n"), _LINE, pl.lit("\n")))
    in_order = [rejected[row] for row in sorted(rejected)]
    places = taken[_ROW].to_numpy().astype(np.int64)
    indices = [spec.index] if spec.index_by is None else taken[_INDEX].unique().to_list()
    return Documents(lines.to_series(), places, in_order, len(frame) - len(taken), indices)


def _identified(rows: pa.Table, spec: DocumentSpec) -> pl.DataFrame:
    """Returns place, id, index and version of each row; they are null where they are not known."""
    import polars as pl

    columns = {_ROW: pl.Series(np.arange(rows.num_rows)), _ID: _ids(rows, spec)}
    if spec.event_time is not None:
        columns[_TIME] = pl.Series(rows[spec.event_time]).dt.convert_time_zone("UTC")
    if spec.index_by is not None:
        pattern = f"{spec.index}-{spec.index_by.time_format}"
        columns[_INDEX] = columns[_TIME].dt.strftime(pattern)
    if spec.newest_by is not None:
        version = pl.Series(rows[spec.newest_by])
        is_time = version.dtype.is_temporal()
        columns[_VERSION] = version.dt.epoch("us") if is_time else version.cast(pl.Int64)
    return pl.DataFrame(columns)


def _ids(rows: pa.Table, spec: DocumentSpec) -> pl.Series:
    import polars as pl

    if not spec.key:
        place = [pl.Series(rows[name]).cast(pl.String) for name in PLACE]
        names: list[pl.Series | pl.Expr] = [pl.concat_str(place, separator=":")]
        if Metadata.EVENT_INDEX.value in rows.column_names:
            index = pl.Series(rows[Metadata.EVENT_INDEX.value]).cast(pl.String)
            names.append(pl.concat_str(pl.lit(":"), index).fill_null(""))
        return pl.select(pl.concat_str(names)).to_series()
    columns = [pl.Series(rows[name]) for name in spec.key]
    if len(columns) == 1:
        [column] = columns
        is_time = column.dtype.is_temporal()
        return plain_texts(column).str.strip_chars('"') if is_time else column.cast(pl.String)
    # JSON has null for a value that is missing, and a row without one has no id.
    texts = [pl.when(column.is_not_null()).then(plain_texts(column)) for column in columns]
    joined = pl.concat_str(texts, separator=",")
    return pl.select(pl.concat_str(pl.lit("["), joined, pl.lit("]"))).to_series()


def _rejections(frame: pl.DataFrame, rows: pa.Table, spec: DocumentSpec) -> Iterator[RejectedRow]:
    """Yields the rows that have no id, no version or no index."""
    import polars as pl

    for row in frame.filter(pl.col(_ID).is_null())[_ROW]:
        missing = [name for name in spec.key or PLACE if not rows[name][row].is_valid]
        detail = f"column {missing[0]!r} is null, and is part of the id"
        yield RejectedRow(row, "missing-value", detail)
    size = pl.col(_ID).str.len_bytes()
    for row, count in frame.filter((size == 0) | (size > _MAX_ID_BYTES)).select(_ROW, size).rows():
        detail = f"an id has from 1 to {_MAX_ID_BYTES} bytes, and this one {count}"
        yield RejectedRow(row, "bad-key", detail)
    for column, name in ((_TIME, spec.event_time), (_VERSION, spec.newest_by)):
        for row in frame.filter(pl.col(column).is_null())[_ROW] if column in frame.columns else ():
            yield RejectedRow(row, "missing-value", f"column {name!r} is null")
    if spec.index_by is not None:
        unnamed = [
            name
            for name in frame[_INDEX].unique()
            if name and not spec.index_by.is_name(name, spec.index)
        ]
        for row in frame.filter(pl.col(_INDEX).is_in(unnamed))[_ROW]:
            detail = f"column {spec.event_time!r} has a time outside the years 0 to 9999"
            yield RejectedRow(row, "wrong-value", detail)
    if _VERSION in frame.columns:
        for row in frame.filter(pl.col(_VERSION) < 0)[_ROW]:
            detail = f"column {spec.newest_by!r} is before 1970, or below 0: no version can be"
            yield RejectedRow(row, "wrong-value", detail)


def _distinct(frame: pl.DataFrame, spec: DocumentSpec) -> pl.DataFrame:
    """Returns one row of each id: of UPSERT the newest, else the first one."""
    if not spec.key:
        return frame
    if spec.newest_by is not None:
        newest = frame.sort(_VERSION, _ROW).unique(_ID, keep="last", maintain_order=True)
        return newest.sort(_ROW)
    document = [_ID, _INDEX] if spec.index_by is not None else [_ID]
    return frame.unique(document, keep="first", maintain_order=True)


def _action(spec: DocumentSpec) -> pl.Expr:
    import polars as pl

    index = pl.col(_INDEX) if spec.index_by is not None else pl.lit(spec.index)
    parts = [index.alias("_index"), pl.col(_ID).alias("_id")]
    if spec.newest_by is None:
        return pl.concat_str(
            pl.lit('{"create":'), pl.struct(parts).struct.json_encode(), pl.lit("}")
        )
    parts += [pl.col(_VERSION), pl.lit("external_gte").alias("version_type")]
    return pl.concat_str(pl.lit('{"index":'), pl.struct(parts).struct.json_encode(), pl.lit("}"))
