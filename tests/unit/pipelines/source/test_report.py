import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.source.report import BadRuns, RangeReport, unread

CLICKS = TopicPartition("clicks", 0)


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


def range_(start, end):
    return OffsetRange(CLICKS, start, end)


def report(start, end, position=None):
    return RangeReport(range_(start, end), position or end, 0, 0, -1, None)


@pytest.mark.parametrize(
    ("reports", "missing"),
    [
        ([report(10, 30)], []),
        ([report(20, 30), report(10, 20)], []),
        ([], [(10, 30)]),
        ([report(10, 20)], [(20, 30)]),
        ([report(20, 30)], [(10, 20)]),
        ([report(12, 15), report(20, 28)], [(10, 12), (15, 20), (28, 30)]),
        ([report(10, 20), report(15, 30)], [(10, 30)]),
        ([report(10, 30), report(10, 30)], [(10, 30)]),
        ([report(10, 30, position=29)], [(10, 30)]),
        ([report(10, 31)], [(10, 30)]),
    ],
)
def test_what_no_report_covers_is_unread(reports, missing):
    other = OffsetRange(TopicPartition("clicks", 1), 0, 5)
    expected = [range_(*edges) for edges in missing]
    assert unread([range_(10, 30), other], reports) == [*expected, other]
