"""The limit of dead letters, for batches of records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DeadLetterLimitError
from headrace.kafka.dead_letters.limiter import BadRuns, DeadLetterLimiter, DeadLetterRules
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
    return DeadLetterLimiter("p", DeadLetterLimit(**limit))


def stops_at(limiter, batches):
    """Index of the batch at which the limiter stops."""
    for index, flags in enumerate(batches):
        try:
            limiter.count_run(CLICKS, runs(flags), "it is cut off")
            limiter.count(len(flags), sum(flags), "it is cut off")
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
    limiter.count_run(CLICKS, runs([True, True, False, True, True]))
    limiter.count_run(VIEWS, runs([False]))
    with pytest.raises(DeadLetterLimitError, match="3 bad records in a row in clicks"):
        limiter.count_run(CLICKS, runs([True]))


@given(st.lists(FLAGS, max_size=6))
def test_a_run_is_the_same_in_any_batches(batches):
    whole = [[bad for batch in batches for bad in batch]]
    is_beyond = longest_run(whole[0]) > 3
    for divided in (batches, whole):
        assert (stops_at(made(max_ratio=1, max_consecutive=3), divided) is not None) == is_beyond


def test_a_share_is_known_before_its_window_ends_and_names_an_example():
    limiter = made(max_ratio=0.2, min_records=10)
    limiter.count(2, 2)
    with pytest.raises(DeadLetterLimitError, match=r"3 of 3 .* allows 2 of 10.*it is cut off"):
        limiter.count(1, 1, "it is cut off")


def test_a_window_forgets_the_one_before():
    limiter = made(max_ratio=0.2, min_records=5)
    assert stops_at(limiter, [[True, False, False, False, False]] * 20) is None
    assert stops_at(limiter, [[False, False, False], [True], [True]]) == 2


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


def test_what_stops_is_named_by_its_kind():
    limit = DeadLetterLimit(max_ratio=0)
    messages = {}
    for kind in ("pipeline", "worker"):
        with pytest.raises(DeadLetterLimitError) as raised:
            DeadLetterRules(kind, "enrich", limit).check_share(1, 1, "")
        messages[kind] = str(raised.value)
    assert "(pipeline 'enrich')" in messages["pipeline"]
    assert "`dead_letter_limit`" in messages["pipeline"]
    assert "(worker 'enrich')" in messages["worker"]
    assert "pipeline" not in messages["worker"]
