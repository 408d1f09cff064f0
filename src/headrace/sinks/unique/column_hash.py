"""64-bit hashes of the values of Arrow columns, whatever their type: for comparing rows.

A value has one hash whether it is in a text or a text view, in a short or a long integer, in
memory or read back from Parquet. Null has the hash 0, as has the empty text.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from headrace.events.event_hash import Hashes, hash_integers, hash_texts


def hash_rows(columns: Iterable[tuple[str, pa.Array]], rows: int) -> Hashes:
    """Returns the hash of each row of named columns, whose order does not matter.

    A column of nulls alone changes nothing: rows from before a column was added equal those in
    which it is null.
    """
    hashes = np.zeros(rows, np.uint64)
    for name, column in columns:
        of_values = hash_values(column)
        seed = hash_texts(pa.array([name]))[0]
        hashes += np.where(of_values, hash_integers(of_values ^ seed), np.uint64(0))
    return hashes


def hash_values(column: pa.Array) -> Hashes:
    """Returns the hash of each value of a column; 0 for null.

    Raises:
        pyarrow.ArrowNotImplementedError: if the type is one that no table of a lake has.
    """
    kind = column.type
    if types.is_nested(kind):
        hashes = _hash_struct(column) if types.is_struct(kind) else _hash_items(column)
    elif types.is_decimal(kind):
        hashes = hash_texts(column.cast(pa.string()))
    elif types.is_floating(kind):
        values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        # One zero and one NaN, of which a double has many.
        plain = np.where(np.isnan(values), np.nan, values + 0.0)
        hashes = hash_integers(plain.view(np.uint64))
    elif _is_text(kind):
        return hash_texts(column)
    elif types.is_null(kind):
        return np.zeros(len(column), np.uint64)
    else:
        hashes = hash_integers(_integers(column))
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return hashes


def _is_text(kind: pa.DataType) -> bool:
    texts = (pa.string(), pa.large_string(), pa.string_view())
    return kind in (*texts, pa.binary(), pa.large_binary(), pa.binary_view())


def _integers(column: pa.Array) -> Hashes:
    if types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    if types.is_date32(column.type):
        column = column.cast(pa.int32())
    numbers: NDArray[np.int64] = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return numbers.view(np.uint64)


def _hash_struct(column: pa.StructArray) -> Hashes:
    names = [field.name for field in column.type]
    return hash_integers(hash_rows(zip(names, column.flatten(), strict=True), len(column)))


def _hash_items(column: pa.Array) -> Hashes:
    """Returns hashes of lists, whose items have an order, and of maps, whose entries have none."""
    is_map = types.is_map(column.type)
    if is_map:
        entries = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
        column = pa.ListArray.from_arrays(column.offsets, entries)
    lengths = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    ends = np.cumsum(lengths)
    of_items = hash_values(column.flatten())
    if not is_map:
        places = np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)
        of_items = of_items ^ hash_integers(places.view(np.uint64))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hash_integers(of_items))])
    return hash_integers((sums[ends] - sums[ends - lengths]) ^ lengths.view(np.uint64))
