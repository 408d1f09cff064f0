"""What the ledger counts of rows of a table, by the columns that they have."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.events.event_hash import Hashes, hash_positions
from headrace.pipelines.ledger.counting.tally import (
    POSITION,
    LedgerColumns,
    LedgerRule,
    event_windows,
    id_hashes,
)
from headrace.sinks.arrow_types import is_text

if TYPE_CHECKING:
    import pyarrow as pa


def ledger_columns(
    rule: LedgerRule, rows: pa.Table, changed: Collection[str] = ()
) -> LedgerColumns:
    """Returns what the ledger counts of rows of a table: they have no bytes.

    Args:
        rule: what the ledger has counted events by.
        rows: without the event time, they are of no window; without columns of ids, of no hash.
        changed: columns that steps have changed, which are not compared.
    """
    known = comparable_columns(rule, rows.schema) - {*changed}
    has_ids = {*rule.id_columns} <= known
    hashes = _hashes(rule, rows) if has_ids else np.zeros(rows.num_rows, np.uint64)
    timed = rule if rule.event_time in known else replace(rule, event_time=None)
    return LedgerColumns(event_windows(timed, rows), np.zeros(rows.num_rows, np.int64), hashes)


def comparable_columns(rule: LedgerRule, schema: pa.Schema) -> set[str]:
    """Returns the columns of the rule whose types are those of event times, ids and positions.

    A table may have an id as a number, or a time as a text.
    """
    from pyarrow import types

    topic, *numbers = POSITION
    checks = dict.fromkeys(numbers, types.is_integer) | {topic: is_text}
    if rule.event_id is not None:
        checks = {rule.id_columns[0]: types.is_struct if "." in rule.event_id else is_text}
    if rule.event_time is not None:
        checks[rule.event_time] = types.is_timestamp
    return {
        column.name
        for column in schema
        if column.name in checks and checks[column.name](column.type)
    }


def hash_record_ids(
    topics: pa.ChunkedArray, partitions: pa.ChunkedArray, offsets: pa.ChunkedArray
) -> Hashes:
    """Returns the hash of each record's id where events have none: topic, partition, offset."""
    import pyarrow as pa

    numbers, at = partitions.to_numpy(), offsets.cast(pa.int64()).to_numpy()
    names = np.asarray(topics.to_pylist(), dtype=object)
    hashes = np.zeros(len(at), np.uint64)
    for topic, partition in {*zip(names, numbers, strict=True)}:
        chosen = (names == topic) & (numbers == partition)
        hashes[chosen] = hash_positions(topic, int(partition), at[chosen])
    return hashes


def _hashes(rule: LedgerRule, rows: pa.Table) -> Hashes:
    if rule.event_id is not None:
        return id_hashes(rule.event_id, rows)
    return hash_record_ids(*(rows.column(name) for name in POSITION))
