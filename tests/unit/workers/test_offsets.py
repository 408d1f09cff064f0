"""Commits are contiguous: never past a record that is not done, nor behind it for nothing."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.workers.lanes.offsets import PartitionOffsets, Ranges, WrongOffsetError, read_metadata


def test_a_record_that_is_not_done_holds_the_commit_and_nothing_else():
    offsets = PartitionOffsets(10)
    for offset in range(10, 20):
        assert offsets.consume(offset)
    for offset in (12, 11, 13, 19):
        offsets.finish(offset)
    assert (offsets.committable, offsets.done_beyond) == (10, 4)
    offsets.finish(10)
    assert (offsets.committable, offsets.done_beyond) == (14, 1)


def test_gaps_of_compaction_and_transactions_hold_nothing():
    offsets = PartitionOffsets(0)
    for offset in (3, 4, 9):
        offsets.consume(offset)
    assert offsets.committable == 3
    offsets.finish(4)
    offsets.finish(3)
    assert offsets.committable == 9
    offsets.finish(9)
    assert offsets.committable == 10


def test_the_end_that_was_reached_counts_as_consumed_and_waits_for_records_before_it():
    offsets = PartitionOffsets(0)
    for offset in range(10):
        offsets.consume(offset)
        if offset != 4:
            offsets.finish(offset)
    assert offsets.reach(11), "behind the last record is the marker of a transaction"
    assert not offsets.reach(11)
    assert (offsets.position, offsets.committable) == (11, 4)
    offsets.finish(4)
    assert offsets.committable == 11


def test_metadata_is_empty_where_not_even_the_id_of_the_topic_fits():
    assert PartitionOffsets(0).metadata("id", 12) == ""


@pytest.mark.parametrize("offset", [4, 5, 7, 8, 100])
def test_what_is_done_twice_or_was_never_consumed_is_an_error(offset):
    offsets = PartitionOffsets(5)
    for consumed in (5, 6, 7):
        offsets.consume(consumed)
    offsets.finish(5)
    offsets.finish(7)
    with pytest.raises(WrongOffsetError):
        offsets.finish(offset)


def test_a_record_that_is_read_again_is_left_and_not_done_by_that():
    offsets = PartitionOffsets(5)
    assert offsets.consume(5)
    assert not offsets.consume(5)
    assert offsets.committable == 5
    assert offsets.consume(6)


def test_what_was_done_beyond_the_commit_is_not_done_again_after_a_restart():
    before = PartitionOffsets(0)
    for offset in range(10):
        before.consume(offset)
    for offset in (1, 2, 5, 9):
        before.finish(offset)
    done = read_metadata(before.committable, before.metadata("id")).done
    after = PartitionOffsets(before.committable, done)
    assert [offset for offset in range(12) if after.consume(offset)] == [0, 3, 4, 6, 7, 8, 10, 11]


@pytest.mark.parametrize(
    "text", ["", "of another program", "headrace1:", "headrace1:id:@@", "headrace1:id:gA=="]
)
def test_metadata_of_others_or_damaged_says_nothing(text):
    assert read_metadata(7, text).done == ()


def test_metadata_that_does_not_fit_leaves_out_the_highest_ranges():
    offsets = PartitionOffsets(0)
    for offset in range(20_000):
        offsets.consume(offset)
    for offset in range(1, 20_000, 2):
        offsets.finish(offset)
    text = offsets.metadata("id")
    assert 4000 < len(text) <= 4096
    kept = read_metadata(0, text).done
    assert kept == tuple((offset, offset + 1) for offset in range(1, 2 * len(kept), 2))


def test_a_stuck_record_costs_one_range_however_many_others_are_done():
    offsets = PartitionOffsets(0)
    for offset in range(100_000):
        offsets.consume(offset)
        if offset:
            offsets.finish(offset)
    assert (offsets.committable, len(offsets._done)) == (0, 1)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 10)), max_size=30))
def test_ranges_are_the_set_of_their_offsets(added):
    ranges, model = Ranges(), set()
    for start, length in added:
        ranges.add(start, start + length)
        model |= set(range(start, start + length))
    assert {offset for start, end in ranges for offset in range(start, end)} == model
    assert all(offset in ranges for offset in model)
    assert not any(offset in ranges for offset in set(range(80)) - model)
    assert all(ranges.count(0, end) == len(model & set(range(end))) for end in range(80))
    found = list(ranges)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(found))


def test_no_offset_is_committed_beyond_what_was_read():
    offsets = PartitionOffsets(3, [(4, 6)])
    assert offsets.consume(3)
    offsets.finish(3)
    metadata = offsets.metadata("id")
    assert (offsets.committable, read_metadata(4, metadata).done) == (4, ((4, 6),))
    assert [offsets.consume(4), offsets.committable] == [False, 5]
    assert [offsets.consume(5), offsets.committable, offsets.done_beyond] == [False, 6, 0]


class Offsets(RuleBasedStateMachine):
    """Against a set of offsets, with restarts."""

    @initialize(position=st.integers(0, 5))
    def assign(self, position):
        self.offsets = PartitionOffsets(position)
        self.next = self.committed = position
        self.done, self.open = set(range(position)), set()

    @rule(gap=st.integers(0, 3))
    def consume(self, gap):
        offset = self.next + gap
        self.done |= set(range(self.next, offset))
        assert self.offsets.consume(offset) == (offset not in self.done)
        self.next = offset + 1
        if offset not in self.done:
            self.open.add(offset)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def finish(self, data):
        offset = data.draw(st.sampled_from(sorted(self.open)))
        self.offsets.finish(offset)
        self.open.remove(offset)
        self.done.add(offset)

    @rule(max_bytes=st.sampled_from([4096, 20]))
    def restart(self, max_bytes):
        position, text = self.offsets.committable, self.offsets.metadata("id", max_bytes)
        assert len(text) <= max_bytes
        kept = {o for start, end in read_metadata(position, text).done for o in range(start, end)}
        assert kept <= self.done
        if max_bytes > 1000:
            assert kept == {offset for offset in self.done if offset >= position}
        self.offsets = PartitionOffsets(position, read_metadata(position, text).done)
        self.next, self.open = position, set()
        self.done = set(range(position)) | kept

    @invariant()
    def the_commit_is_the_first_that_is_not_read_and_done(self):
        is_over = {offset for offset in self.done if offset < self.next}
        expected = next(offset for offset in range(10_000) if offset not in is_over)
        assert self.offsets.committable == expected
        assert self.offsets.done_beyond == sum(offset >= expected for offset in self.done)


TestOffsets = Offsets.TestCase
TestOffsets.settings = settings(max_examples=60, stateful_step_count=30)
