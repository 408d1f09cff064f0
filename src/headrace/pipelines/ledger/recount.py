"""Counts the rows of a table by window, to compare them with the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.model import Metadata
from headrace.pipelines.ledger.balance import Recount
from headrace.pipelines.ledger.event_hash import Hashes, hash_positions
from headrace.pipelines.ledger.sums import Sums
from headrace.pipelines.ledger.tally import EventFacts, LedgerRule, event_windows, id_hashes
from headrace.sinks.api import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa

_POSITION = (Metadata.TOPIC.value, Metadata.PARTITION.value, Metadata.OFFSET.value)


def recount(snapshot: Snapshot, rule: LedgerRule) -> Recount:
    """Returns the sums of the rows of a table; it holds a part of them in memory at a time.

    Where events have no id, their places in the topic are what the ledger has hashed. If the table
    has no columns of these, rows are counted, and their ids are not compared.

    Raises:
        SinkError: if the rows can't be read.
    """
    import pyarrow as pa

    ids = _id_columns(snapshot, rule)
    times = [rule.event_time] if rule.event_time else []
    columns = list(dict.fromkeys([*ids, *times])) or list(snapshot.column_names[:1])
    sums: dict[int | None, Sums] = {}
    for batch in snapshot.batches(columns):
        rows = pa.Table.from_batches([batch])
        hashes = _hashes(rule, rows) if ids else np.zeros(rows.num_rows, np.uint64)
        facts = EventFacts(event_windows(rule, rows), np.zeros(rows.num_rows, np.int64), hashes)
        for window, counted in facts.sums.items():
            sums[window] = sums.get(window, Sums()) + counted
    return Recount(sums, has_ids=bool(ids))


def _id_columns(snapshot: Snapshot, rule: LedgerRule) -> Sequence[str]:
    if rule.event_id is not None:
        return [rule.event_id.partition(".")[0]]
    return _POSITION if set(_POSITION) <= set(snapshot.column_names) else ()


def _hashes(rule: LedgerRule, rows: pa.Table) -> Hashes:
    if rule.event_id is not None:
        return id_hashes(rule.event_id, rows)
    import pyarrow as pa

    topics, partitions = rows.column(_POSITION[0]), rows.column(_POSITION[1]).to_numpy()
    offsets = rows.column(_POSITION[2]).cast(pa.int64()).to_numpy()
    hashes = np.zeros(rows.num_rows, np.uint64)
    names = np.asarray(topics.to_pylist(), dtype=object)
    for topic in set(names):
        for partition in np.unique(partitions[names == topic]):
            chosen = (names == topic) & (partitions == partition)
            hashes[chosen] = hash_positions(topic, int(partition), offsets[chosen])
    return hashes
