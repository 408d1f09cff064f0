"""Names of columns, as Spark's functions take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ArrowMap: TypeAlias = "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]"


def quoted(name: str) -> str:
    """Returns what names a column: without quotes, ``a.b`` would be the field b of a column a."""
    return f"`{name.replace('`', '``')}`"


def map_in_arrow(rows: DataFrame, function: ArrowMap, schema: StructType) -> DataFrame:
    """Returns ``rows.mapInArrow``, which itself takes no names with ``.`` or backticks."""
    names = rows.columns
    if {".", "`"}.isdisjoint("".join(names)):
        return rows.mapInArrow(function, schema)

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    return rows.toDF(*map(str, range(len(names)))).mapInArrow(named, schema)
