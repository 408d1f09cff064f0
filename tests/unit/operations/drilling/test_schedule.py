"""The faults of a drill follow from its seed."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.operations.drilling.schedule import FaultKind, schedule

KINDS = st.lists(st.sampled_from(FaultKind), min_size=1)
ROUNDS = st.integers(1, 20)
SEEDS = st.integers(0, 2**32 - 1)


@given(KINDS, ROUNDS, SEEDS)
def test_the_same_seed_has_the_same_faults(kinds, rounds, seed):
    assert schedule(kinds, rounds, seed) == schedule(kinds, rounds, seed)


@given(KINDS, ROUNDS, SEEDS)
def test_more_rounds_begin_as_fewer_do(kinds, rounds, seed):
    fewer = schedule(kinds, rounds, seed)
    assert schedule(kinds, rounds + 1, seed)[: len(fewer)] == fewer


@given(KINDS, ROUNDS, SEEDS)
def test_each_kind_happens_once_in_a_round(kinds, rounds, seed):
    faults = schedule(kinds, rounds, seed)
    size = len(set(kinds))
    assert len(faults) == size * rounds
    for first in range(0, len(faults), size):
        happened = Counter(fault.kind for fault in faults[first : first + size])
        assert happened == dict.fromkeys(set(kinds), 1)


@given(KINDS, SEEDS, st.lists(st.integers(), min_size=1, max_size=5))
def test_a_fault_chooses_one_of_what_there_is(kinds, seed, items):
    for fault in schedule(kinds, 3, seed):
        assert fault.choose(items) in items


def test_other_seeds_have_other_faults():
    schedules = {tuple(schedule(list(FaultKind), 2, seed)) for seed in range(50)}
    assert len(schedules) == 50
