"""Chunks of records that are decoded in parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.pipelines.source.decode.decoder import Decoded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.events import Rejection

Part: TypeAlias = tuple["Sequence[int] | NDArray[np.int64]", Decoded]
"""The indices of records in a chunk, ascending, and what they were decoded to."""


def decoded_in_blocks(
    decode: Callable[[Sequence[bytes | None]], Decoded],
    values: Sequence[bytes | None],
    max_records: int,
    arrow_schema: pa.Schema,
) -> Decoded:
    """Decodes a chunk in blocks of at most ``max_records``."""
    tables = [arrow_schema.empty_table()]
    rejected: dict[int, Rejection] = {}
    for start in range(0, len(values), max_records):
        decoded = decode(values[start : start + max_records])
        tables.append(decoded.rows)
        rejected |= decoded.rejected_at(range(start, len(values)))
    return Decoded(pa.concat_tables(tables).combine_chunks(), rejected)


def in_order(
    parts: Sequence[Part], rejected: Mapping[int, Rejection], arrow_schema: pa.Schema
) -> Decoded:
    """Joins the parts of a chunk; ``rejected`` are the records that are in none."""
    for indices, decoded in parts:
        rejected = {**rejected, **decoded.rejected_at(indices)}
    rejected = dict(sorted(rejected.items()))
    if not parts:
        return Decoded(arrow_schema.empty_table(), rejected)
    rows = pa.concat_tables([decoded.rows for _, decoded in parts])
    if len(parts) > 1:
        places = [np.delete(indices, [*decoded.rejected]) for indices, decoded in parts]
        rows = rows.take(pa.array(np.argsort(np.concatenate(places))))
    return Decoded(rows, rejected)


def without_rows(rows: pa.Table, indices: Collection[int]) -> pa.Table:
    """Returns all rows but those at some indices."""
    if not len(indices):
        return rows
    is_kept = np.ones(rows.num_rows, np.bool_)
    is_kept[[*indices]] = False
    return rows.filter(pa.array(is_kept))
