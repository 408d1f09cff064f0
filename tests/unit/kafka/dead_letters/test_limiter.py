"""The limit of dead letters is the same for batches of records and for one record at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DeadLetterLimitError
from headrace.kafka.dead_letters.limiter import BadRuns, DeadLetterLimiter
from headrace.model import DeadLetterLimit, TopicPartition

CLICKS, VIEWS = TopicPartition("clicks", 0), TopicPartition("views", 0)
FLAGS = st.lists(st.booleans(), max_size=12)


def longest_run(flags):
    best = run = 0
    for bad in flags:
        run = run + 1 if bad else 0
        best = max(best, run)
    return best


def runs(flags):
    return BadRuns.of([i for i, bad in enumerate(flags) if bad], len(flags))


def made(**limit):
    return DeadLetterLimiter("w", DeadLetterLimit(**limit))


def stops_at(limiter, flags):
    """Index of the record at which the limiter stops, of records that are counted one by one."""
    for index, bad in enumerate(flags):
        try:
            if bad:
                limiter.reject(CLICKS, "it is cut off")
            else:
                limiter.accept(CLICKS)
        except DeadLetterLimitError:
            return index
    return None


@given(FLAGS)
def test_the_longest_run_is_that_of_the_records(flags):
    assert runs(flags).longest == longest_run(flags)


@given(FLAGS, FLAGS, FLAGS)
def test_stretches_join_to_what_the_whole_would_give(first, second, third):
    assert runs(first).then(runs(second)).then(runs(third)) == runs(first + second + third)


def test_a_good_record_ends_a_run_of_its_own_partition_only():
    limiter = made(max_consecutive=2)
    for bad in (True, True, False, True, True):
        assert stops_at(limiter, [bad]) is None
    limiter.accept(VIEWS)
    with pytest.raises(DeadLetterLimitError, match="3 bad records in a row in clicks"):
        limiter.reject(CLICKS, "it is cut off")


@given(st.lists(FLAGS, max_size=6))
def test_a_run_is_the_same_in_batches_and_one_by_one(batches):
    one_by_one, in_batches = made(max_consecutive=3), made(max_consecutive=3)
    flags = [bad for batch in batches for bad in batch]
    is_beyond = stops_at(one_by_one, flags) is not None
    try:
        for batch in batches:
            in_batches.count_run(CLICKS, runs(batch))
    except DeadLetterLimitError:
        assert is_beyond
    else:
        assert not is_beyond


def test_a_share_is_known_before_its_window_ends_and_names_an_example():
    limiter = made(max_ratio=0.2, min_records=10)
    assert stops_at(limiter, [True, True]) is None
    with pytest.raises(DeadLetterLimitError, match=r"3 of 3 .* allows 2 of 10.*it is cut off"):
        limiter.reject(CLICKS, "it is cut off")


def test_a_window_forgets_the_one_before():
    limiter = made(max_ratio=0.2, min_records=5)
    assert stops_at(limiter, [True, False, False, False, False] * 20) is None
    assert stops_at(limiter, [False, False, False, True, True]) == 4


def test_batches_that_are_smaller_are_counted_together():
    limiter = made(max_ratio=0.2, min_records=10)
    limiter.count(4, 1)
    limiter.count(4, 1)
    with pytest.raises(DeadLetterLimitError, match="3 of 9 records are bad"):
        limiter.count(1, 1)


def test_a_batch_that_is_larger_is_taken_as_a_whole():
    limiter = made(max_ratio=0.2, min_records=10)
    limiter.count(100, 20)
    with pytest.raises(DeadLetterLimitError, match=r"21 of 100 .* allows 20 of 100"):
        limiter.count(100, 21)
