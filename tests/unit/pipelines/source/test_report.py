from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.source.report import BadRuns


def longest_run(flags):
    best = run = 0
    for bad in flags:
        run = run + 1 if bad else 0
        best = max(best, run)
    return best


def runs(flags):
    return BadRuns.of([i for i, bad in enumerate(flags) if bad], len(flags))


FLAGS = st.lists(st.booleans(), max_size=12)


@given(FLAGS)
def test_the_longest_run_is_found(flags):
    assert runs(flags).longest == longest_run(flags)


@given(FLAGS, FLAGS, FLAGS)
def test_stretches_join_to_what_the_whole_would_give(one, two, three):
    assert runs(one).then(runs(two)).then(runs(three)) == runs(one + two + three)
