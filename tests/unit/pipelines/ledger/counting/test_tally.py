"""What a read task counts of its events."""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.events.event_hash import hash_texts
from headrace.ledger.sums import Fate, Hop, Sums
from headrace.model import TopicPartition
from headrace.pipelines.ledger.counting.tally import LedgerRule, RangeTally, SinkTally, value_bytes
from headrace.pipelines.ledger.sums import LedgerKey, added

CLICKS = TopicPartition("clicks", 0)
RULE = LedgerRule(60, "at", "meta.id")

events = st.lists(
    st.tuples(
        st.none() | st.integers(-200, 400), st.none() | st.text(max_size=9), st.integers(0, 9)
    ),
    max_size=30,
)


def table(chunk):
    times = pa.array([None if at is None else at * 1_000_000 for at, *_ in chunk], pa.int64())
    ids = pa.array([{"id": id_} for _, id_, _ in chunk], pa.struct([("id", pa.string())]))
    return pa.table({"at": times.cast(pa.timestamp("us", "UTC")), "meta": ids})


def brute(chunks):
    numbers, sizes, hashes = Counter(), Counter(), Counter()
    for chunk in chunks:
        for at, id_, size in chunk:
            window = None if at is None else at // 60 * 60
            numbers[window] += 1
            sizes[window] += size
            hashes[window] += int(hash_texts(pa.array([id_], pa.string()))[0])
    return {w: Sums(numbers[w], sizes[w], hashes[w] % 2**64) for w in numbers}


@given(st.lists(events, max_size=4))
def test_windows_have_the_sums_of_their_events(chunks):
    tally = RangeTally(RULE, CLICKS)
    for chunk in chunks:
        sizes = np.array([size for *_, size in chunk], np.int64)
        tally.add(Hop.READ, Fate.IN, tally.columns(table(chunk), [], sizes))
    sums = {line.key.window: line.sums for line in tally.lines()}
    assert sums == {w: s for w, s in brute(chunks).items() if s != Sums()}


@given(st.lists(events, min_size=1, max_size=4), st.sets(st.integers(0, 40)))
def test_rows_that_the_sink_rejects_are_dead_in_their_own_windows(chunks, rejected):
    tally, sink_tally = RangeTally(RULE, CLICKS), SinkTally()
    for chunk in chunks:
        sizes = np.array([size for *_, size in chunk], np.int64)
        sink_tally.expect(tally, tally.columns(table(chunk), [], sizes))
    rows = [event for chunk in chunks for event in chunk]
    rejected = {index for index in rejected if index < len(rows)}
    sink_tally.written(len(rows), rejected)
    fates = {fate: {} for fate in (Fate.IN, Fate.OUT, Fate.DEAD)}
    for key, sums in added(tally.lines()).items():
        fates[key.fate][key.window] = sums
    dead = [event for index, event in enumerate(rows) if index in rejected]
    out = [event for index, event in enumerate(rows) if index not in rejected]
    assert fates[Fate.IN] == brute([rows])
    assert fates[Fate.DEAD] == brute([dead])
    assert fates[Fate.OUT] == brute([out])


def test_records_without_an_id_are_told_apart_by_their_places():
    class Record:
        def __init__(self, offset):
            self.offset = lambda: offset

    tally = RangeTally(LedgerRule(60, None, None), CLICKS)
    rows, sizes = pa.table({"value": [b"a", b"b"]}), np.ones(2, np.int64)
    near, far = (tally.columns(rows, [Record(7), Record(at)], sizes) for at in (8, 9))
    assert near.hashes[0] == far.hashes[0]
    assert near.hashes[1] != far.hashes[1]


def test_a_rejected_record_is_read_and_dead_without_a_window():
    tally = RangeTally(RULE, CLICKS)
    tally.rejected(Fate.DEAD, value_bytes([b"abc", None]))
    assert added(tally.lines()) == {
        LedgerKey(Hop.READ, fate, None, "clicks", 0): Sums(2, 3) for fate in (Fate.IN, Fate.DEAD)
    }


def test_rows_that_are_lost_before_the_sink_are_missing_there():
    tally, sink_tally = RangeTally(RULE, CLICKS), SinkTally()
    chunk = [(0, "a", 1), (0, "b", 1), (0, "c", 1)]
    columns = tally.columns(table(chunk), [], np.ones(3, np.int64))
    sink_tally.expect(tally, columns)
    sink_tally.written(2, [])
    sink_tally.expect(tally, columns)
    [came] = [line.sums for line in tally.lines() if line.key.fate is Fate.IN]
    assert came == brute([chunk[:2]])[0]
