from hypothesis import given
from hypothesis import strategies as st

from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.source.offsets import split
from headrace.pipelines.source.planning.packs import PACK_OFFSETS, packs
from headrace.pipelines.source.reading.reader import ReadRange


def work(*spans):
    return [
        ReadRange(OffsetRange(TopicPartition("t", p), 0, span), 7) for p, span in enumerate(spans)
    ]


def test_two_hundred_partitions_with_little_traffic_are_one_task():
    assert len(packs(work(*[20] * 200), 0)) == 1


def test_a_large_range_has_a_task_of_its_own():
    small, large = 100, PACK_OFFSETS
    assert [len(pack) for pack in packs(work(small, small, large, small), 0)] == [2, 1, 1]


def test_as_many_tasks_as_asked_for_are_left_where_there_are_ranges():
    assert len(packs(work(*[20] * 200), 8)) >= 8


def test_pieces_of_one_partition_are_tasks_of_their_own():
    pieces = split([OffsetRange(TopicPartition("t", 0), 0, 100)], 4)
    assert len(packs([ReadRange(piece, 7) for piece in pieces], 4)) == 4


def test_a_heartbeat_is_a_task_of_its_own():
    beat = ReadRange(None, 7, 1)
    assert packs([*work(5, 5), beat], 0)[-1] == (beat,)


@given(st.lists(st.integers(1, 3 * PACK_OFFSETS), max_size=20), st.integers(0, 9))
def test_every_range_is_in_one_pack_in_order(spans, min_tasks):
    given_work = work(*spans)
    found = packs(given_work, min_tasks)
    assert [one for pack in found for one in pack] == given_work
    assert all(sum(one.range.span for one in p) <= PACK_OFFSETS for p in found if len(p) > 1)
