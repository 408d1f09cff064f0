"""Which rows a column does not take, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.model import EventField
from headrace.sinks.bigquery.columns import NULLABLE, REPEATED, REQUIRED, TableColumn, by_name
from headrace.sinks.json_values import (
    BEYOND_CALENDAR,
    beyond_calendar,
    mask_at,
    mask_of,
    members_of,
    unwritable,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Mask: TypeAlias = NDArray[np.bool_]

WRONG_VALUE, NULL_IN_ARRAY, MISSING_VALUE = "wrong-value", "null-in-array", "missing-value"


@dataclass(frozen=True)
class RowsRejected:
    """Rows that a column does not take: one Boolean a row, and why."""

    rows: Mask
    reason: str
    detail: str


def rejections(
    array: Any, column: TableColumn, field: EventField | None, place: str
) -> Iterator[RowsRejected]:
    """Yields what a column does not take of an array.

    Args:
        array: whose values stand in the places of rows.
        column: of the table.
        field: of the event, where the values are its own; None: they are a step's.
        place: of the column, for messages.
    """
    import numpy as np

    if column.mode == REQUIRED:
        yield RowsRejected(mask_of(array.is_null()), MISSING_VALUE, f"{place} is null")
    if column.mode == REPEATED:
        detail = f"{place} is null, and an ARRAY"
        yield RowsRejected(mask_of(array.is_null()), NULL_IN_ARRAY, detail)
        for inner in _of_items(array, column, field, place):
            # Arrow counts items of lists that are null, too, as those of structs that are null.
            parents = np.repeat(np.arange(len(array)), item_counts(array))[inner.rows]
            yield RowsRejected(mask_at(parents, len(array)), inner.reason, inner.detail)
    elif column.type == "JSON":
        for rows, fault in unwritable(array, field):
            yield RowsRejected(rows, WRONG_VALUE, f"{place} {fault}")
    else:
        yield from _of_values(array, column, field, place)


def item_counts(lists: Any) -> NDArray[np.int64]:
    """Returns how many items each list has; one that is null has none."""
    import pyarrow.compute as pc

    counts: NDArray[np.int64] = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return counts


def _of_items(
    array: Any, column: TableColumn, field: EventField | None, place: str
) -> Iterator[RowsRejected]:
    items = array.flatten()
    yield RowsRejected(mask_of(items.is_null()), NULL_IN_ARRAY, f"{place} holds a null")
    item = TableColumn(column.name, column.type, NULLABLE, column.fields)
    yield from rejections(items, item, field and field.element, f"{place}, in a list,")


def _of_values(
    array: Any, column: TableColumn, field: EventField | None, place: str
) -> Iterator[RowsRejected]:
    import pyarrow.compute as pc
    from pyarrow import types

    kind = array.type
    if types.is_struct(kind):
        known, is_there = by_name(column.fields), mask_of(array.is_valid())
        for index, member in enumerate(members_of(kind, field)):
            name, values = kind.field(index).name, pc.struct_field(array, [index])
            # A member that is REQUIRED says nothing where there is no struct.
            for rejected in rejections(values, known[name.lower()], member, f"{place}.{name}"):
                yield RowsRejected(rejected.rows & is_there, rejected.reason, rejected.detail)
    elif types.is_date32(kind) or types.is_timestamp(kind):
        yield RowsRejected(beyond_calendar(array), WRONG_VALUE, f"{place} {BEYOND_CALENDAR}")
