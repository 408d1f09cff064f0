"""Which rows are kept, beside a reference of a few lines that looks at one row after the other."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sinks.lake.unique.known_rows import KnownRows
from headrace.sinks.lake.unique.row_keys import ROW_KEY
from headrace.sinks.lake.unique.verdicts import Verdict, judge

MAX_DISTANCE = 2
ROWS = st.tuples(st.integers(0, 9), st.integers(0, 1), st.integers(0, 9))
BATCHES = st.lists(st.lists(ROWS, max_size=30), max_size=8)


def keyed(rows):
    keys = np.zeros(len(rows), ROW_KEY)
    for place, (key, values, number) in enumerate(rows):
        keys[place] = (key, values, place, number)
    return keys


class Reference:
    """Keeps the first row of a key, and knows it."""

    def __init__(self):
        self.kept = []

    def verdicts(self, rows):
        return [self.verdict(*row) for row in rows]

    def verdict(self, key, values, number):
        near = [r for k, r, n in self.kept if key and k == key and abs(n - number) <= MAX_DISTANCE]
        if near:
            return {
                Verdict.DUPLICATE if values in near else Verdict.CONFLICT,
                *self.unsure(near, values),
            }
        self.kept.append((key, values, number))
        return {Verdict.KEEP}

    @staticmethod
    def unsure(near, values):
        """Where several rows are near that differ, one of them decides."""
        return {Verdict.CONFLICT} if any(other != values for other in near) else set()


def small_runs():
    """Returns known rows: runs of more than five are in files, and merged in parts of five."""
    return KnownRows(rows_in_memory=5)


@settings(max_examples=300)
@given(BATCHES, st.randoms(use_true_random=True))
def test_the_first_row_of_a_key_is_kept_over_any_batches(batches, shuffle):
    known, reference = small_runs(), Reference()
    known.begin(range(20))
    for rows in batches:
        keys = keyed(rows)
        # Ranks, not places, say which row is first.
        shuffled = np.array(shuffle.sample(range(len(rows)), len(rows)), np.int64)
        verdicts = np.empty(len(rows), np.uint8)
        verdicts[shuffled] = judge(keys[shuffled], shuffled, known, MAX_DISTANCE)
        assert all(
            Verdict(verdict) in expected
            for verdict, expected in zip(verdicts, reference.verdicts(rows), strict=True)
        )
        known.add(keys[verdicts == Verdict.KEEP])


def test_rows_without_a_key_are_kept_however_equal_they_are():
    known = small_runs()
    known.begin([0])
    keys = keyed([(0, 1, 0)] * 3)
    known.add(keys)
    assert judge(keys, np.arange(3), known, MAX_DISTANCE).tolist() == [Verdict.KEEP] * 3


def test_slices_that_were_used_longest_ago_are_forgotten_first():
    known = small_runs()
    known.begin([1, 2, 3])
    known.add(keyed([(7, 0, 1), (8, 0, 2), (9, 0, 3)]))
    known.begin([1])
    known.keep_last(2)
    assert known.slices == {1, 3}
    found, _ = known.find(keyed([(7, 0, 1), (8, 0, 2), (9, 0, 3)]), 0)
    assert found.tolist() == [True, False, True]


def test_many_runs_of_a_slice_are_few_after_they_were_merged():
    known = small_runs()
    known.begin([0])
    for batch in range(200):
        known.add(keyed([(1 + batch * 3 + place, batch, 0) for place in range(3)]))
    [runs] = known._slices.values()
    assert sum(map(len, runs)) == 600
    assert len(runs) < 8
    asked = keyed([(key, (key - 1) // 3, 0) for key in range(1, 601)])
    found, same = known.find(asked, 0)
    assert found.all()
    assert same.all()
