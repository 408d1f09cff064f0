"""Counts the rows of a table by window, to compare them with the ledger."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.events.event_hash import Hashes, hash_positions
from headrace.pipelines.ledger.balance import Recount
from headrace.pipelines.ledger.sums import Sums
from headrace.pipelines.ledger.tally import (
    POSITION,
    EventFacts,
    LedgerRule,
    event_windows,
    id_hashes,
)
from headrace.sinks.api import Snapshot, WindowCounts

if TYPE_CHECKING:
    import pyarrow as pa


def recount(snapshot: Snapshot, rule: LedgerRule, changed: Collection[str] = ()) -> Recount:
    """Returns the sums of the rows of a table; it holds a part of them in memory at a time.

    Where events have no id, their places in the topic are what the ledger has hashed. If the table
    has no columns of ids as they were read, rows are counted, and their ids are not compared.

    Args:
        snapshot: of the table.
        rule: what the ledger has counted events by.
        changed: columns that steps have changed or dropped.

    Raises:
        SinkError: if the rows can't be read.
    """
    import pyarrow as pa

    known = {*snapshot.column_names} - {*changed}
    if rule.event_time is not None and rule.event_time not in known:
        return _changed_times(rule)
    ids = rule.id_columns if {*rule.id_columns} <= known else ()
    times = [rule.event_time] if rule.event_time else []
    columns = list(dict.fromkeys([*ids, *times])) or list(snapshot.column_names[:1])
    sums: dict[int | None, Sums] = {}
    for batch in snapshot.batches(columns):
        for window, counted in facts_of_rows(
            rule, pa.Table.from_batches([batch]), changed
        ).sums.items():
            sums[window] = sums.get(window, Sums()) + counted
    return Recount(sums, has_ids=bool(ids))


def facts_of_rows(rule: LedgerRule, rows: pa.Table, changed: Collection[str] = ()) -> EventFacts:
    """Returns what the ledger counts of rows of a table: they have no bytes.

    Args:
        rule: what the ledger has counted events by.
        rows: without the event time, they are of no window; without columns of ids, of no hash.
        changed: columns that steps have changed, which tell nothing.
    """
    known = {*rows.column_names} - {*changed}
    has_ids = {*rule.id_columns} <= known
    hashes = _hashes(rule, rows) if has_ids else np.zeros(rows.num_rows, np.uint64)
    timed = rule if rule.event_time in known else replace(rule, event_time=None)
    return EventFacts(event_windows(timed, rows), np.zeros(rows.num_rows, np.int64), hashes)


def added_counts(counts: WindowCounts, rule: LedgerRule, changed: Collection[str] = ()) -> Recount:
    """Returns counts that a target keeps, added up by the ledger's windows.

    Args:
        counts: of windows whose length divides that of the ledger's.
        rule: what the ledger has counted events by.
        changed: columns that steps have changed or dropped.
    """
    if counts.event_time != rule.event_time:
        return Recount(failure=f"it counts by {counts.event_time!r}, not by the topic's event time")
    if rule.event_time in changed:
        return _changed_times(rule)
    sums: dict[int | None, Sums] = {}
    for start, number in counts.events.items():
        window = start - start % rule.window_seconds
        sums[window] = sums.get(window, Sums()) + Sums(number)
    return Recount(sums, has_ids=False)


def _changed_times(rule: LedgerRule) -> Recount:
    return Recount(failure=f"steps change or drop {rule.event_time!r}, which tells the window")


def _hashes(rule: LedgerRule, rows: pa.Table) -> Hashes:
    if rule.event_id is not None:
        return id_hashes(rule.event_id, rows)
    import pyarrow as pa

    topics, partitions = rows.column(POSITION[0]), rows.column(POSITION[1]).to_numpy()
    offsets = rows.column(POSITION[2]).cast(pa.int64()).to_numpy()
    hashes = np.zeros(rows.num_rows, np.uint64)
    names = np.asarray(topics.to_pylist(), dtype=object)
    for topic in set(names):
        for partition in np.unique(partitions[names == topic]):
            chosen = (names == topic) & (partitions == partition)
            hashes[chosen] = hash_positions(topic, int(partition), offsets[chosen])
    return hashes
