import pytest

from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.source.report import RangeReport, missing_ranges

CLICKS = TopicPartition("clicks", 0)


def range_(start, end):
    return OffsetRange(CLICKS, start, end)


def report(start, end, position=None):
    return RangeReport(range_(start, end), position or end, 0, 0, -1, ())


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
def test_what_no_report_covers_is_missing(reports, missing):
    other = OffsetRange(TopicPartition("clicks", 1), 0, 5)
    expected = [range_(*edges) for edges in missing]
    assert missing_ranges([range_(10, 30), other], reports) == [*expected, other]
