"""Avro values of one schema to columns, a field of all records at a time.

A value of Avro's has neither names nor lengths: where a field begins is known once the one before
it was read. So of each record is kept where its next field begins, and NumPy reads that field of
all records of a block in a few calls. That costs a tenth of reading record by record.

Only what every reader takes alike is read this way. A record in which anything else shows (it is
cut off, a text is not UTF-8, a time lies beyond the calendar, null where the class has none) falls
back to the reader of single records, which has the words for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.events.avro.types import kind_of
from headrace.model import EventField, FieldType
from headrace.pipelines.source.decode.avro_cursors import Cursors, items_of
from headrace.pipelines.source.decode.avro_reads import (
    KEYS,
    READS,
    SKIPS,
    NotInColumnsError,
    Read,
    Skip,
    fixed_size,
)
from headrace.pipelines.source.decode.columns import arrow_type

if TYPE_CHECKING:
    from headrace.events.avro.schemas import Named, Schema
    from headrace.events.avro.values import AvroReader
    from headrace.model import EventSchema
    from headrace.pipelines.source.decode.avro_cursors import Bools, Int64s

_NO_ROWS = np.empty(0, np.int64)
MAX_TYPES = 300
MIN_RECORDS = 50
"""Of a block: fewer are read faster record by record."""


class AvroColumns:
    """Reads values that were written with one schema into the columns of an event class.

    Args:
        reader: of single values of that schema.
        schema: of the event class, as :func:`~headrace.events.parsing.values.as_read` gives it.
        arrow_schema: columns of fields of the class.

    Raises:
        NotInColumnsError: if the schema has a type, or the class a field, that is not read this
            way, or the schema has more than MAX_TYPES with each named type where it is used.
    """

    def __init__(self, reader: AvroReader, schema: EventSchema, arrow_schema: pa.Schema) -> None:
        if not reader.is_bounded:
            raise NotInColumnsError("it does not bound how deep values nest, or how long they are")
        self._arrow_schema = arrow_schema
        self._fields = schema.names
        writer, named = reader.written
        plan = _Plan(named)
        writer, outer = plan.defined(writer, ())
        self._read = plan.fields(writer, schema.fields, outer)

    def read(self, values: Sequence[bytes]) -> tuple[pa.Table, Bools]:
        """Returns a row for each value, and which rows are none: their records fall back.

        Args:
            values: after the same id of the schema; one at least, at most MAX_BLOCK_BYTES.
        """
        cursors = Cursors.of(values)
        arrays = dict(zip(self._fields, self._read(cursors), strict=True))
        cursors.fall_back(cursors.at != cursors.ends)
        columns = [arrays[name] for name in self._arrow_schema.names]
        return pa.Table.from_arrays(columns, schema=self._arrow_schema), cursors.needs_fallback


class _Plan:
    """How the fields of a class are read from values of a schema.

    ``outer`` are the names of the types around: one that holds itself is not read in columns.
    """

    def __init__(self, named: Named) -> None:
        self._named, self._types = named, 0

    def fields(
        self, writer: Schema, fields: Sequence[EventField], outer: Sequence[str]
    ) -> Callable[[Cursors], list[pa.Array]]:
        """Returns what reads a record: an array of each field of the class."""
        if kind_of(writer) not in ("record", "error"):
            raise NotInColumnsError(f"it has Avro's {kind_of(writer):.60} for a class")
        # Fields come in the order in which they were written, whichever the class has.
        parts = {part["name"]: part["type"] for part in writer["fields"]}
        if len(parts) < len(writer["fields"]):
            raise NotInColumnsError(f"two fields of {writer['name']!r} have one name")
        declared = {field.name: field for field in fields}
        steps: dict[str, Callable[[Cursors], Any]] = {
            name: self._read(part, declared[name], outer)
            if name in declared
            else self._skip(part, outer)
            for name, part in parts.items()
        }
        absent = {field.name: arrow_type(field) for field in fields if field.name not in parts}
        missing = [name for name in absent if not declared[name].nullable]
        if missing:
            raise NotInColumnsError(f"it lacks the field {missing[0]!r}, which is required")
        if not fields:
            raise NotInColumnsError("a class has no fields")

        def read(cursors: Cursors) -> list[pa.Array]:
            arrays = {name: step(cursors) for name, step in steps.items()}
            arrays |= {name: pa.nulls(len(cursors.at), kind) for name, kind in absent.items()}
            return [arrays[field.name] for field in fields]

        return read

    def defined(self, writer: Schema, outer: Sequence[str]) -> tuple[Schema, Sequence[str]]:
        """Returns the definition of a type, and the names of those around its parts."""
        self._types += 1
        if self._types > MAX_TYPES:
            raise NotInColumnsError(f"it has more than {MAX_TYPES} types, each where it is used")
        if isinstance(writer, str) and writer in self._named:
            writer = self._named[writer]
        name = writer.get("name") if isinstance(writer, dict) else None
        if name is None:
            return writer, outer
        if name in outer:
            raise NotInColumnsError(f"its type {name!r} holds itself")
        return writer, (*outer, name)

    def _read(self, writer: Schema, field: EventField, outer: Sequence[str]) -> Read:
        if isinstance(writer, list):
            return self._union(writer, field, outer)
        writer, outer = self.defined(writer, outer)
        kind = kind_of(writer)
        if field.type is FieldType.STRUCT:
            members = list(arrow_type(field))
            read = self.fields(writer, field.fields, outer)
            return lambda cursors: pa.StructArray.from_arrays(read(cursors), fields=members)
        if field.element is not None:
            return self._containers(writer, field, outer)
        make = READS.get((kind, field.type))
        if make is None:
            raise _other_type(kind, field)
        return make(writer, field)

    def _containers(self, writer: Schema, field: EventField, outer: Sequence[str]) -> Read:
        kind, is_map = arrow_type(field), field.type is FieldType.MAP
        if kind_of(writer) != ("map" if is_map else "array"):
            raise _other_type(kind_of(writer), field)
        read = self._read(writer["values" if is_map else "items"], field.item, outer)
        if not is_map:

            def lists(cursors: Cursors) -> pa.Array:
                offsets, (items,), _ = _items(cursors, (read,))
                return pa.ListArray.from_arrays(offsets, items, type=kind)

            return lists

        def maps(cursors: Cursors) -> pa.Array:
            offsets, (keys, items), rows = _items(cursors, (KEYS, read))
            # The reader of single records decides which value of a repeated key counts.
            pairs = (
                pa.table({"row": rows, "key": keys})
                .group_by(["row", "key"])
                .aggregate([([], "count_all")])
            )
            repeated = pairs.filter(pc.greater(pairs["count_all"], 1))["row"].to_numpy()
            cursors.needs_fallback[repeated] = True
            return pa.MapArray.from_arrays(offsets, keys, items, type=kind)

        return maps

    def _union(self, branches: Sequence[Schema], field: EventField, outer: Sequence[str]) -> Read:
        null, other = _null_and_other(branches)
        read = self._read(branches[other], field, outer)
        is_nullable = field.nullable

        def read_present(cursors: Cursors) -> pa.Array:
            rows, is_null = _present(cursors, null)
            if not is_nullable:
                cursors.fall_back(is_null)
            if len(rows) == len(is_null):
                return read(cursors)
            part = cursors.of_rows(rows)
            array = read(part)
            cursors.follow(rows, part)
            places = np.cumsum(~is_null) - 1
            return array.take(pa.array(places, mask=is_null))

        return read_present

    def _skip(self, writer: Schema, outer: Sequence[str]) -> Skip:
        """Returns what skips a value that the class does not have."""
        if isinstance(writer, list):
            return self._skip_union(writer, outer)
        writer, outer = self.defined(writer, outer)
        base = writer if isinstance(writer, str) else writer["type"]
        if base in ("record", "error"):
            skips = [self._skip(part["type"], outer) for part in writer["fields"]]
            return lambda cursors: [skip(cursors) for skip in skips]
        if base == "fixed":
            size = fixed_size(writer)
            return lambda cursors: cursors.skip(size)
        if base in ("array", "map"):
            skips = [self._skip(writer["items" if base == "array" else "values"], outer)]
            if base == "map":
                skips.insert(0, SKIPS["bytes"])
            return lambda cursors: [*items_of(cursors, skips)]
        skip = SKIPS.get(base)
        if skip is None:
            raise NotInColumnsError(f"it has the type {base:.60}")
        return skip

    def _skip_union(self, branches: Sequence[Schema], outer: Sequence[str]) -> Skip:
        null, other = _null_and_other(branches)
        skip = self._skip(branches[other], outer)

        def skip_present(cursors: Cursors) -> None:
            rows, _ = _present(cursors, null)
            part = cursors.of_rows(rows)
            skip(part)
            cursors.follow(rows, part)

        return skip_present


def _other_type(kind: str, field: EventField) -> NotInColumnsError:
    return NotInColumnsError(f"it has Avro's {kind:.60} for {field.type.value} {field.name!r}")


def _null_and_other(branches: Sequence[Schema]) -> tuple[int, int]:
    null = branches.index("null") if "null" in branches else 0
    if len(branches) != 2 or branches[null] != "null" or isinstance(branches[1 - null], list):  # noqa: PLR2004
        raise NotInColumnsError("it has a union that is not of null and one other type")
    return null, 1 - null


def _present(cursors: Cursors, null: int) -> tuple[Int64s, Bools]:
    """Reads which branch of a union follows; returns the rows of the other one, and the nulls."""
    branches = cursors.longs()
    is_wrong = (branches < 0) | (branches > 1)
    cursors.fall_back(is_wrong)
    is_null = (branches == null) | is_wrong
    return np.nonzero(~is_null)[0], is_null


def _items(cursors: Cursors, parts: Sequence[Read]) -> tuple[pa.Array, list[pa.Array], Int64s]:
    """Returns where the items of each record end, arrays of their parts, and their records."""
    steps = [(np.empty(0, np.int64), [part(cursors.of_rows(_NO_ROWS)) for part in parts])]
    steps += items_of(cursors, parts)
    rows = np.concatenate([rows for rows, _ in steps])
    order = np.argsort(rows, kind="stable")
    arrays = [pa.concat_arrays(arrays) for arrays in zip(*(read for _, read in steps), strict=True)]
    ends = np.cumsum(np.bincount(rows, minlength=len(cursors.at)))
    offsets = pa.array(np.append(0, ends).astype(np.int32))
    return offsets, [array.take(pa.array(order)) for array in arrays], rows[order]
