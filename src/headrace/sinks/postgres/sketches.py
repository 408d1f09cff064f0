"""Distinct counts: HyperLogLog sketches that are merged within a batch's transaction.

A sketch is of Apache DataSketches' type HLL_4, which its libraries in other languages read too, as
do Spark's ``hll_sketch_estimate`` and ``hll_union_agg``. Its estimate is of the values that it has
seen, however often and in whatever order, so sketches of tasks, batches and windows merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import SinkError
from headrace.sinks.postgres.connection import execute_numbered
from headrace.sinks.postgres.identifiers import listed, listed_names, table_identifier
from headrace.sinks.postgres.rows.insert import group_number, insert_from
from headrace.sinks.postgres.rows.staging import staged_rows
from headrace.sinks.postgres.target import TargetSpec

if TYPE_CHECKING:
    from psycopg.sql import Composed

    from headrace.sinks.postgres.connection import Connection

DEFAULT_LG_K = 12
_ROWS_AT_ONCE = 1_000


class Merged(NamedTuple):
    """A sketch and the estimate that it gives, rounded."""

    estimate: int
    sketch: bytes


def sketch_of(values: Iterable[str] | Iterable[int], lg_k: int) -> bytes:
    """Returns the sketch of some values; the empty text is none."""
    from datasketches import hll_sketch, tgt_hll_type

    sketch = hll_sketch(lg_k, tgt_hll_type.HLL_4)
    for value in values:
        sketch.update(value)
    return bytes(sketch.serialize_compact())


def merged(sketches: Iterable[bytes]) -> Merged:
    """Returns the union of sketches; empty bytes, of a row that is new, are none.

    Where they differ in precision, it has the smallest.

    Raises:
        ValueError: if one of them is no sketch.
    """
    from datasketches import hll_sketch, hll_union, tgt_hll_type

    try:
        opened = [hll_sketch.deserialize(sketch) for sketch in sketches if sketch]
    except Exception as error:  # of the library's C++, of no type of its own
        raise ValueError(str(error)) from error
    union = hll_union(min((sketch.lg_config_k for sketch in opened), default=DEFAULT_LG_K))
    for sketch in opened:
        union.update(sketch)
    result = union.get_result(tgt_hll_type.HLL_4)
    return Merged(round(result.get_estimate()), bytes(result.serialize_compact()))


def insert_with_sketches(connection: Connection, spec: TargetSpec, staging: Sequence[str]) -> None:
    """Moves the rows of staging tables into the table, and merges their sketches with its own.

    The insert locks the rows of all groups, in the order of their keys, before their sketches are
    read: what another transaction has merged meanwhile is in them.

    Raises:
        SinkError: if a sketch in the table is none, or a trigger has moved a row meanwhile.
    """
    # Of the batch alone, so these can be read before the rows are locked.
    cursor = connection.execute(_select_sketches(spec, staging), binary=True)
    staged = {number: sketches for number, *sketches in cursor}
    rows = connection.execute(insert_from(spec, staging)).fetchall()
    updates = (
        (table, place, *_columns(spec, staged[int(number)], sketches))
        for table, place, number, *sketches in rows
    )
    written = sum(
        execute_numbered(
            connection, _update_sketches(spec), list(map(list, zip(*some, strict=True)))
        ).rowcount
        for some in _slices(updates)
    )
    # Rows are updated by their place (ctid), which a trigger that changes them moves.
    if written != len(staged):
        reason = f"{len(staged)} rows have new sketches, and {written} could be written"
        raise SinkError(f"table {spec.table}", f"{reason}: does a trigger change or skip rows?")


def _columns(
    spec: TargetSpec, staged: Sequence[Sequence[bytes]], own: Sequence[bytes | None]
) -> list[Any]:
    """Returns the values that a row gets: estimates, then sketches."""
    try:
        values = [
            merged([*of_batch, before or b""]) for of_batch, before in zip(staged, own, strict=True)
        ]
    except ValueError as error:
        columns = ", ".join(spec.sketches)
        reason = f"a value of {columns} is no sketch of headrace: {error}"
        raise SinkError(f"table {spec.table}", reason) from error
    return [*(value.estimate for value in values), *(value.sketch for value in values)]


def _slices(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    rows = iter(rows)
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        yield some


def _select_sketches(spec: TargetSpec, staging: Sequence[str]) -> Composed:
    """Selects the number of each group of a batch, and arrays of its sketches."""
    from psycopg import sql

    sketches = (sql.SQL("array_agg({})").format(sql.Identifier(name)) for name in spec.sketches)
    return sql.SQL("SELECT {}, {} FROM ({}) AS rows GROUP BY {}").format(
        group_number(spec), listed(sketches), staged_rows(spec, staging), listed_names(spec.key)
    )


def _update_sketches(spec: TargetSpec) -> Composed:
    """Writes estimates and sketches to rows, by their place: arrays of each."""
    from psycopg import sql

    changed = [*spec.distinct, *spec.sketches]
    values = [sql.Identifier(f"_headrace_value_{place}") for place in range(len(changed))]
    changes = (
        sql.SQL("{} = {}").format(sql.Identifier(name), value)
        for name, value in zip(changed, values, strict=True)
    )
    types = ["oid", "tid", *["bigint"] * len(spec.distinct), *["bytea"] * len(spec.distinct)]
    arrays = [f"${number}::{kind}[]" for number, kind in enumerate(types, 1)]
    return sql.SQL(
        "UPDATE {} AS target SET {} FROM unnest({})"
        " AS merged (_headrace_table, _headrace_place, {})"
        " WHERE target.tableoid = _headrace_table AND target.ctid = _headrace_place"
    ).format(
        table_identifier(spec.table),
        listed(changes),
        listed(map(sql.SQL, arrays)),
        listed(values),
    )
