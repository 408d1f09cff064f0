"""The lineage that rows carry through steps."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.ledger.sums import Fate, Hop, Sums
from headrace.pipelines.ledger.counting.row_lineage import (
    LINEAGE,
    RowLineage,
    RowTally,
    lineage_column,
    lineage_type,
    without_lineage,
)
from headrace.pipelines.ledger.counting.tally import LedgerColumns, SinkTally
from headrace.pipelines.ledger.sums import LedgerKey, added

NO_WINDOW = np.iinfo(np.int64).min
TOPICS = ("clicks", "views")

rows = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(0, 2**31 - 1),
        st.sampled_from([NO_WINDOW, -3600, 0, 3600]),
        st.integers(0, 100),
        st.integers(0, 2**64 - 1),
    ),
    max_size=20,
)


def column(table):
    """The column of rows that come one by one, each from a partition of its own."""
    pieces = [
        lineage_column(
            source,
            partition,
            LedgerColumns(
                np.array([window], np.int64),
                np.array([size], np.int64),
                np.array([hash_], np.uint64),
            ),
        )
        for source, partition, window, size, hash_ in table
    ]
    return pa.concat_arrays(pieces) if pieces else pa.array([], lineage_type())


def brute(table, hop, fate):
    sums = {}
    for source, partition, window, size, hash_ in table:
        start = None if window == NO_WINDOW else window
        key = LedgerKey(hop, fate, start, TOPICS[source], partition)
        sums[key] = sums.get(key, Sums()) + Sums(1, size, hash_)
    return sums


@given(st.lists(rows, max_size=4), st.sets(st.integers(0, 60)))
def test_rows_at_the_sink_are_counted_by_the_events_that_they_came_from(tables, rejected):
    tally, at_sink = RowTally(TOPICS), SinkTally()
    schema = pa.schema([("n", pa.int64()), (LINEAGE, lineage_type())])
    batches = [
        pa.record_batch([pa.array(range(len(table)), pa.int64()), column(table)], schema=schema)
        for table in tables
    ]
    stripped = list(without_lineage(batches, at_sink, tally))
    assert {tuple(table.column_names) for table in stripped} <= {("n",)}
    every = [row for table in tables for row in table]
    rejected = {index for index in rejected if index < len(every)}
    at_sink.written(len(every), rejected)
    dead = [row for index, row in enumerate(every) if index in rejected]
    out = [row for index, row in enumerate(every) if index not in rejected]
    expected = brute(every, Hop.SINK, Fate.IN) | brute(out, Hop.SINK, Fate.OUT)
    assert added(tally.lines()) == expected | brute(dead, Hop.SINK, Fate.DEAD)


def test_a_slice_of_the_column_has_the_lineage_of_its_rows():
    table = [(0, n, 3600 * n, n, n) for n in range(5)]
    lineage = RowLineage.of(column(table).slice(2, 2))
    assert lineage.partitions.tolist() == [2, 3]
    assert lineage.events.bytes.tolist() == [2, 3]


def test_no_rows_have_no_lineage():
    assert len(RowLineage.of(pa.array([], lineage_type()))) == 0
