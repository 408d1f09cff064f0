"""What is written in which order, what is late, and what a crash repeats: nothing."""

from __future__ import annotations

from types import SimpleNamespace

import confluent_kafka
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.links.merger.plan import ClockSource
from headrace.links.merger.positions.position import InputPosition, committed_offset, position_of
from headrace.links.merger.sorting.clock import InputClock
from headrace.links.merger.sorting.order import OrderKey
from headrace.links.merger.sorting.target_partition import (
    AHEAD,
    LATE,
    MAX_AHEAD_MS,
    SourcePartition,
    TargetPartition,
)
from headrace.model import TopicPartition

NOW_MS = 1_764_000_000_000
TARGET = TopicPartition("out", 0)
MESSAGE = SimpleNamespace(value=lambda: b"v")


class Merged:
    """Inputs as lists of times, one output, and what transactions have made durable."""

    def __init__(self, *inputs, lateness_ms=0):
        self.inputs, self.lateness_ms = list(inputs), lateness_ms
        self.out, self.aside = [], []
        self.committed = [InputPosition(0, topics={"in0": "id"}) for _ in inputs]
        self.begin()

    def begin(self):
        """Goes on from what is committed, as its metadata tells it."""
        starts = []
        for place, position in enumerate(self.committed):
            source = TopicPartition(f"in{place}", 0)
            starts.append(position_of(committed_offset(source, position)))
        self.open_out, self.open_aside = [], []
        self.output = TargetPartition(
            TARGET,
            [
                SourcePartition.at(
                    TopicPartition(f"in{place}", 0),
                    ClockSource.WALL,
                    start,
                    InputClock(place, self.lateness_ms, start.time_ms),
                )
                for place, start in enumerate(starts)
            ],
        )

    def read(self, place, count=None, now_ms=NOW_MS):
        each = self.output.inputs[place]
        end = len(self.inputs[place]) if count is None else each.next + count
        times = self.inputs[place][each.next : end]
        if times:
            records = [(t, place, each.next + n, MESSAGE) for n, t in enumerate(times)]
            self._write(self.output.put(place, records, now_ms))
            self.take(now_ms)

    def take(self, now_ms=NOW_MS):
        while written := self.output.take(now_ms, limit=2):
            self._write(written)

    def _write(self, written):
        for record, reason in written:
            if reason:
                self.open_aside.append((record[1], record[2], reason))
            else:
                self.open_out.append(record[:3])

    def commit(self):
        self.committed = [self.output.position(each) for each in self.output.inputs]
        self.out += self.open_out
        self.aside += self.open_aside
        self.open_out, self.open_aside = [], []

    def end(self, now_ms=NOW_MS):
        """All inputs are silent for long."""
        for each in self.output.inputs:
            each.clock.is_idle = True
        self.take(now_ms)
        self.commit()

    @property
    def times(self):
        return [time_ms for time_ms, _, _ in self.out]


def test_the_vector_of_kafka_workers_own_test():
    merged = Merged([10, 50, 70, 130, 150], [30, 90, 110, 120, 140])
    merged.read(0)
    merged.read(1)
    merged.commit()
    assert merged.times == [10, 30, 50, 70, 90, 110, 120, 130, 140]  # and 150 is held
    assert merged.committed[0].offset == 4
    merged.end()
    assert merged.times[-1] == 150


def test_nothing_is_written_before_each_input_is_known():
    merged = Merged([10, 20], [])
    merged.read(0)
    assert (merged.open_out, merged.output.blocking(NOW_MS)) == ([], [merged.output.inputs[1]])


def test_equal_times_are_in_the_order_of_the_sources_however_they_are_read():
    for order in ((0, 1), (1, 0)):
        merged = Merged([5, 5, 6], [5, 5])
        for place in order:
            merged.read(place, 1)
        for place in order:
            merged.read(place)
        merged.end()
        assert merged.out == [(5, 0, 0), (5, 0, 1), (5, 1, 0), (5, 1, 1), (6, 0, 2)]


def test_an_equal_time_of_an_earlier_source_that_may_still_come_is_waited_for():
    merged = Merged([5], [5])
    merged.read(0)
    merged.read(1)
    assert merged.open_out == [(5, 0, 0)]


def test_a_record_is_late_only_where_a_later_one_was_written_already():
    merged = Merged([100, 95, 120, 108, 90, 140], [200], lateness_ms=10)
    merged.read(1)
    merged.read(0, 3)
    assert merged.output.reached == OrderKey(100, 0)
    merged.read(0)
    merged.end()
    assert merged.times == [95, 100, 108, 120, 140, 200]
    assert merged.aside == [(0, 4, LATE)]


def test_a_clock_that_was_ahead_for_a_moment_makes_nothing_late_that_can_be_put_in_order():
    merged = Merged([10, 30], [20, 40, 60])
    merged.read(0)
    merged.output.inputs[1].clock.note_complete(NOW_MS + 3_600_000)
    merged.take()
    assert merged.output.reached == OrderKey(30, 0)
    merged.read(1)
    merged.end()
    assert (merged.times, merged.aside) == ([10, 30, 40, 60], [(1, 0, LATE)])


def test_a_time_that_has_not_come_moves_no_watermark():
    clock = InputClock(0, 10, -1)
    clock.note_records(500)
    assert clock.watermark(now_ms=300) == OrderKey(290, 0)
    clock.note_complete(400)
    assert clock.watermark(now_ms=600) == OrderKey(490, 0)


def test_a_source_is_idle_when_it_was_waited_for_and_has_not_moved():
    clock = InputClock(0, 0, -1)
    clock.note_complete(5)
    assert not clock.note_blocking(10.0, now=100.0)  # it was not asked before
    clock.note_complete(5)  # told again
    assert clock.note_blocking(10.0, now=110.0)
    clock.note_complete(6)
    assert (clock.is_idle, clock.watermark(9)) == (False, OrderKey(6, 0))


def test_a_source_whose_clock_is_ahead_is_written_when_its_time_comes():
    merged = Merged([NOW_MS + 5_000], [NOW_MS + 4_000], lateness_ms=1_000)
    merged.read(0)
    merged.read(1)
    assert merged.output.blocking(NOW_MS) == []
    merged.take(NOW_MS + 4_500)
    assert merged.open_out == []
    merged.take(NOW_MS + 5_500)  # nothing more came
    assert merged.open_out == []
    for each in merged.output.inputs:
        each.clock.note_complete(NOW_MS + 6_000)
    merged.take(NOW_MS + 6_000)
    assert [time_ms for time_ms, *_ in merged.open_out] == [NOW_MS + 4_000, NOW_MS + 5_000]


def test_a_source_that_sends_only_what_is_ahead_of_the_clock_becomes_idle():
    merged = Merged([NOW_MS + 60_000 + n for n in range(10)], [NOW_MS - 5])
    merged.read(1)
    [ahead, _] = merged.output.inputs
    for seconds in range(5):
        merged.read(0, 1)
        became_idle = ahead.note_blocking(3.0, float(seconds))
        assert became_idle is (seconds == 3)
    merged.take()
    assert [time_ms for time_ms, _, _ in merged.open_out] == [NOW_MS - 5]
    # The time of its first record has come: it is waited for again.
    merged.take(NOW_MS + 60_000)
    assert not ahead.clock.is_idle


def test_a_source_ahead_of_the_clock_that_never_ends_is_as_far_as_what_was_read():
    merged = Merged([NOW_MS + 60_000 + n for n in range(10)], [NOW_MS - 5])
    merged.read(1)
    merged.read(0, 1)
    [ahead, _] = merged.output.inputs
    merged.output.note_end(ahead, NOW_MS, 3, NOW_MS)
    merged.read(0, 1)
    merged.output.note_end(ahead, NOW_MS + 1, 5, NOW_MS)
    merged.take()
    assert merged.open_out == []
    merged.read(0, 1)  # up to where it ended at NOW_MS
    merged.output.note_end(ahead, NOW_MS + 2, 7, NOW_MS)
    merged.take()
    assert [time_ms for time_ms, _, _ in merged.open_out] == [NOW_MS - 5]


def test_a_source_whose_own_records_move_its_time_is_no_further_than_they_are():
    merged = Merged([NOW_MS - 60_000 + n for n in range(10)], [NOW_MS - 5])
    merged.read(1)
    [behind, _] = merged.output.inputs
    for end in (3, 5, 7):
        merged.read(0, 2)
        merged.output.note_end(behind, NOW_MS, end + 2, NOW_MS)
    assert behind.clock.complete_ms == -1


def test_a_record_from_the_future_waits_for_its_time_though_all_sources_are_idle():
    merged = Merged([NOW_MS - 10, NOW_MS + 3_000_000], [])
    merged.read(0)
    merged.end()
    assert merged.times == [NOW_MS - 10]
    merged.end(NOW_MS + 3_000_000)
    assert merged.times == [NOW_MS - 10, NOW_MS + 3_000_000]


def test_a_source_is_not_ahead_where_its_own_records_hold_it_up():
    merged = Merged([100, 200, 300], [250], lateness_ms=100)
    merged.read(0)
    merged.read(1)
    first, second = merged.output.inputs
    assert merged.output.is_ahead(first, NOW_MS)
    assert not merged.output.is_ahead(second, NOW_MS)


def test_what_an_idle_input_sends_later_is_late_and_it_is_waited_for_again():
    merged = Merged([10, 30, 60], [20, 50])
    merged.read(0, 2)
    merged.output.inputs[1].clock.is_idle = True
    merged.take()
    assert merged.output.reached == OrderKey(30, 0)
    merged.read(1)
    merged.read(0)
    merged.commit()
    assert (merged.times, merged.aside) == ([10, 30, 50], [(1, 0, LATE)])


def test_records_far_ahead_of_the_clock_go_aside_once_all_before_them_are_written():
    ahead = NOW_MS + MAX_AHEAD_MS + 1
    merged = Merged([NOW_MS - 5, ahead, NOW_MS - 3], [NOW_MS - 4])
    merged.read(0, 2)
    merged.commit()
    assert (merged.aside, merged.committed[0].offset) == ([], 0)
    merged.read(1)
    merged.commit()
    assert merged.times == [NOW_MS - 5]
    assert (merged.aside, merged.committed[0].offset) == ([(0, 1, AHEAD)], 2)


def test_a_record_ahead_is_judged_anew_after_a_crash_and_is_in_one_place():
    ahead = NOW_MS + MAX_AHEAD_MS + 1
    merged = Merged([NOW_MS - 5, ahead], [])
    merged.read(0)
    merged.commit()
    merged.begin()
    merged.read(0, now_ms=ahead)
    merged.end(ahead)
    assert (merged.times, merged.aside) == ([NOW_MS - 5, ahead], [])


def test_an_input_holds_the_output_until_what_waited_is_read_again():
    merged = Merged([10, 50, 60], [20, 70, 80])
    merged.read(0)
    merged.read(1, 1)
    merged.commit()
    assert merged.times == [10, 20]
    merged.begin()
    merged.read(1)
    assert merged.open_out == []  # 50 and 60 are committed as read, and wait
    merged.read(0)
    merged.end()
    assert merged.times == [10, 20, 50, 60, 70, 80]


def test_an_equal_time_that_comes_after_sources_have_changed_places_outlasts_a_crash():
    merged = Merged([5], [5])
    merged.read(0)
    merged.read(1)
    merged.end()
    merged.inputs = [[], [5, 9], [5, 5]]  # a source was added before them, and one has another 5
    merged.committed = [InputPosition(0, topics={"in0": "id"}), *merged.committed]
    merged.begin()
    merged.read(2)
    merged.commit()
    merged.begin()
    merged.read(1)
    merged.end()
    assert sorted(merged.out) == [(5, 0, 0), (5, 1, 0), (5, 2, 1), (9, 1, 1)]
    assert merged.aside == []


@pytest.mark.parametrize("order", [(1, 2), (2, 1), (2, 0, 1), (1, 0, 2)])
def test_sources_that_change_places_or_go_lose_and_repeat_nothing(order):
    """What is committed of one is of it alone, since places in the order are not kept."""
    merged = Merged([5, 9], [5, 9], [5, 9])
    merged.read(0)
    merged.read(1, 1)
    merged.read(2, 1)
    merged.commit()
    assert merged.out == [(5, 0, 0), (5, 1, 0)]  # of the third, 5 may be preceded by another 5
    merged.inputs = [merged.inputs[place] for place in order]
    merged.committed = [merged.committed[place] for place in order]
    merged.begin()
    merged.out.clear()
    for _ in range(2):  # a crash behind the first commit changes nothing
        merged.commit()
        merged.begin()
    for place in range(len(order)):
        merged.read(place)
    merged.end()
    written = sorted((order[place], offset) for _, place, offset in merged.out)
    left = {0: [(0, 1)], 1: [(1, 1)], 2: [(2, 0), (2, 1)]}
    assert written == sorted(each for place in order for each in left[place])
    assert merged.aside == []


def test_metadata_of_another_tool_tells_nothing():
    offset = confluent_kafka.TopicPartition("in", 0, 7, "moved by hand")
    assert position_of(offset) == InputPosition(7, read_to=7)


times = st.lists(st.integers(0, 60), max_size=25)
acts = st.lists(
    st.tuples(
        st.sampled_from(["read", "read", "read", "commit", "crash", "idle"]),
        st.integers(0, 2),
        st.integers(1, 6),
    ),
    max_size=60,
)


@settings(max_examples=500)
@example([[0, 0]], [("read", 0, 1), ("idle", 0, 1), ("read", 0, 1), ("commit", 0, 1)], 1)
@given(st.lists(times, min_size=1, max_size=3), acts, st.integers(0, 60))
def test_each_record_is_written_once_and_those_in_order_are_sorted(inputs, steps, lateness_ms):
    merged = Merged(*inputs, lateness_ms=lateness_ms)
    was_idle = run(merged, [*steps, ("crash", 0, 1)])
    for place in range(len(inputs)):
        merged.read(place)
    merged.end()
    assert merged.out == sorted(merged.out)
    written = [(place, offset) for _, place, offset in merged.out]
    written += [(place, offset) for place, offset, _ in merged.aside]
    assert sorted(written) == [(p, o) for p, each in enumerate(inputs) for o in range(len(each))]
    if not was_idle:
        assert {(p, o) for p, o, _ in merged.aside} <= beyond(inputs, lateness_ms)


@settings(max_examples=500)
@given(st.lists(times.map(sorted), min_size=1, max_size=3), acts)
def test_the_order_of_sorted_inputs_is_a_function_of_them_alone(inputs, steps):
    merged = Merged(*inputs)
    run(merged, [step for step in steps if step[0] != "idle"])
    for place in range(len(inputs)):
        merged.read(place)
    merged.end()
    every = [(t, p, o) for p, each in enumerate(inputs) for o, t in enumerate(each)]
    assert (merged.out, merged.aside) == (sorted(every), [])


def run(merged, steps):
    """Does what ``steps`` say; whether an input was declared idle."""
    was_idle = False
    for act, number, count in steps:
        place = number % len(merged.inputs)
        if act == "read":
            merged.read(place, count)
        elif act == "commit":
            merged.commit()
        elif act == "crash":
            merged.begin()
        else:
            was_idle |= merged.output.inputs[place].note_blocking(0.0, now=1.0)
            merged.take()
    return was_idle


def beyond(inputs, lateness_ms):
    """Records that are further behind the newest one before them than is declared."""
    return {
        (place, offset)
        for place, each in enumerate(inputs)
        for offset, time_ms in enumerate(each)
        if time_ms < max(each[:offset], default=0) - lateness_ms
    }
