from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.source.offsets import SourceOffset, allocate_batch, ranges_between, split

ENDLESS = float("inf")
POSITIONS = st.dictionaries(st.integers(0, 5), st.integers(0, 10_000), min_size=1)


def ends(start, latest, max_records, paused=()):
    """The ends of a batch of records of no size."""
    return allocate_batch(
        start,
        latest,
        max_records=max_records,
        max_bytes=ENDLESS,
        mean_bytes=dict.fromkeys(start, 0.0),
        paused=paused,
    )


def test_an_offset_survives_the_checkpoint():
    offset = SourceOffset("t", "id", {0: 5, 11: 7}, planned_ms=9, heartbeat_us=3)
    assert SourceOffset.from_json(offset.to_json()) == offset


@given(start=POSITIONS, ahead=st.integers(0, 50_000), most=st.integers(1, 20_000))
def test_a_batch_never_passes_the_latest_offset_and_never_goes_back(start, ahead, most):
    latest = {p: at + ahead * (p + 1) for p, at in start.items()}
    found = ends(start, latest, most)
    assert all(start[p] <= found[p] <= latest[p] for p in start)


@given(start=POSITIONS, ahead=st.integers(0, 50_000), most=st.integers(10, 20_000))
def test_a_batch_takes_at_most_its_limit_and_one_record_a_partition(start, ahead, most):
    latest = {p: at + ahead * (p + 1) for p, at in start.items()}
    taken = sum(ends(start, latest, most).values()) - sum(start.values())
    assert taken <= most + len(start)


def test_every_partition_with_a_backlog_moves():
    assert ends({0: 0, 1: 0}, {0: 1_000_000, 1: 1}, 100)[1] == 1


def test_a_held_partition_stays_while_the_others_go_on():
    assert ends({0: 10, 1: 10}, {0: 50, 1: 50}, 1000, {0}) == {0: 10, 1: 50}


def test_a_new_partition_begins_where_the_plan_first_puts_it():
    before = SourceOffset("t", "id", {0: 5}, 1)
    found = SourceOffset("t", "id", {0: 5, 1: 3}, 2)
    read = SourceOffset("t", "id", {0: 6, 1: 8}, 3)
    assert ranges_between(before, found) == []
    assert ranges_between(found, read) == [
        OffsetRange(TopicPartition("t", 0), 5, 6),
        OffsetRange(TopicPartition("t", 1), 3, 8),
    ]


@given(
    spans=st.lists(st.integers(1, 10_000), min_size=1, max_size=6),
    tasks=st.integers(0, 40),
)
def test_pieces_cover_the_ranges_without_gap_or_overlap(spans, tasks):
    ranges = [OffsetRange(TopicPartition("t", p), 7, 7 + span) for p, span in enumerate(spans)]
    pieces = split(ranges, tasks)
    for range_ in ranges:
        mine = [piece for piece in pieces if piece.partition == range_.partition]
        assert mine[0].start == range_.start
        assert mine[-1].end == range_.end
        assert all(a.end == b.start for a, b in pairwise(mine))
        assert all(piece.span > 0 for piece in mine)


def test_one_partition_becomes_as_many_tasks_as_asked():
    pieces = split([OffsetRange(TopicPartition("t", 0), 0, 100)], 4)
    assert [(piece.start, piece.end) for piece in pieces] == [
        (0, 25),
        (25, 50),
        (50, 75),
        (75, 100),
    ]
