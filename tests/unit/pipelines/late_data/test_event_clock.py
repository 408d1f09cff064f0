"""How far event time has come in a partition."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.late_data.event_clock import EventClock, EventTimeSamples, reached

NOW_US = 1_764_000_000_000_000
HOUR_US = 3_600_000_000


def test_event_time_is_what_a_hundredth_of_the_events_has_reached():
    assert reached([(100, 9_900), (500, 100)]) == 500
    assert reached([(100, 9_901), (500, 99)]) == 100


def test_one_event_from_a_wrong_clock_does_not_move_event_time():
    assert reached([(100, 1), (999, 1)]) == 100
    assert reached([(100, 1_000), (999, 1), (998, 1)]) == 100
    assert reached([(999, 1)]) == 999


@given(
    samples=st.lists(st.tuples(st.integers(0, 100), st.integers(1, 50)), min_size=1, max_size=20)
)
def test_event_time_is_that_of_an_event_and_most_are_not_newer(samples):
    time = reached(samples)
    newer = sum(events for at, events in samples if at > time)
    assert time in {at for at, _ in samples}
    assert newer < max(2, 0.01 * sum(events for _, events in samples))


def sampled(*ranges):
    """The samples of ranges of a partition, each with its events' times in chunks."""
    samples = []
    for chunks in ranges:
        times = EventTimeSamples("at")
        for chunk in chunks:
            times.add(pa.table({"at": pa.array(chunk, pa.timestamp("us", "UTC"))}))
        samples += times.samples()
    return samples


def test_a_hundredth_is_of_the_events_of_the_batch_and_not_of_a_chunk():
    chunks = [list(range(10_000)) for _ in range(20)]
    chunks[7][:150] = [NOW_US] * 150
    assert 9_000 < reached(sampled(chunks[:10], chunks[10:])) < 10_000
    chunks[7][:8_000] = [NOW_US] * 8_000
    assert reached(sampled(chunks[:10], chunks[10:])) == NOW_US


@given(st.lists(st.lists(st.lists(st.integers(0, 999), max_size=200), max_size=3), max_size=4))
def test_samples_stand_for_all_events_and_a_hundredth_has_reached_what_they_say(ranges):
    times = [time for chunks in ranges for chunk in chunks for time in chunk]
    samples = sampled(*ranges)
    assert sum(events for _, events in samples) == len(times)
    if not times:
        return
    time, few = reached(samples), 2 * len(ranges)
    has_reached = sum(at >= time for at in times)
    assert has_reached >= min(len(times), max(2, 0.01 * len(times)))
    assert sum(at > time for at in times) <= 0.03 * len(times) + 2 * few


def test_events_without_a_time_are_not_counted():
    assert sampled([[None, 5, None, 7]]) == [(5, 2)]
    assert sampled([[None]], []) == []


def after(*batches):
    clock = EventClock()
    for samples in batches:
        clock = clock.after(samples, NOW_US)
    return clock.event_us


def test_the_clock_never_passes_the_wall_clock_of_the_plan():
    assert after([(NOW_US + 23 * HOUR_US, 5)]) == NOW_US


def test_the_clock_never_goes_back():
    assert after([(NOW_US, 5)], [(5, 5)], [(7, 1)]) == NOW_US


def test_a_batch_of_one_event_moves_the_clock_as_far_as_the_batch_before_confirms():
    assert after([(100, 1)]) is None
    assert after([(100, 1)], [(200, 1)]) == 100
    assert after([(100, 50)], [(200, 1)], [(300, 1)]) == 200


def test_one_event_from_a_wrong_clock_does_not_move_it_whatever_the_size_of_batches():
    assert after([(100, 1)], [(NOW_US, 1)], [(110, 1)], [(120, 1)]) == 110
    assert after([(100, 9)], [(NOW_US, 1)], [(110, 9)]) == 110


def test_a_batch_without_event_times_changes_nothing():
    assert after([(100, 2)], []) == 100
