"""The columns of a join's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.model import EventSchema, Metadata
from headrace.pipelines.source.record_columns import row_columns

if TYPE_CHECKING:
    import pyarrow as pa


def joined_columns(
    later: EventSchema | None,
    earlier: EventSchema | None,
    column: str,
    metadata: Sequence[Metadata],
) -> pa.Schema:
    """Returns the columns of joined rows: the later event, ``column``, metadata; all nullable."""
    import pyarrow as pa

    nested = pa.field(column, pa.struct(list(row_columns(earlier, ()))))
    whole = row_columns(later, metadata)
    event = len(row_columns(later, ()))
    fields = [*list(whole)[:event], nested, *list(whole)[event:]]
    return pa.schema([field.with_nullable(True) for field in fields])
