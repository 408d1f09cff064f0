"""How ranges are cut into parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.reprocessing import ranges as module
from headrace.pipelines.reprocessing.ranges import PlannedRange, cut_into_parts

SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)), max_size=5)


@given(spans=SPANS, size=st.integers(1, 30), unread=SPANS)
def test_parts_hold_every_offset_once_and_those_that_were_not_read_are_apart(spans, size, unread):
    ranges = [
        PlannedRange(f"clicks/{p}", start, start + span) for p, (start, span) in enumerate(spans)
    ]
    new = [
        OffsetRange(TopicPartition("clicks", p), start, start + span)
        for p, (start, span) in enumerate(unread)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PART_OFFSETS", size)
        cut = cut_into_parts(ranges, new)
    read = [
        (range_.partition.partition, offset)
        for part in cut
        for range_ in part
        for offset in range(range_.start, range_.end)
    ]
    for p, (start, span) in enumerate(spans):
        assert sorted(offset for q, offset in read if q == p) == [*range(start, start + span)]
    for part in cut:
        assert len({any(range_.within(each) for each in new) for range_ in part}) == 1
    # Each partition has its share of a part, and one offset at least.
    assert all(sum(range_.span for range_ in part) <= size + len(part) for part in cut)
