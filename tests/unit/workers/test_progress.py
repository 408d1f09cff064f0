"""What an instance says of itself, to files, to people and to Prometheus."""

import time
from dataclasses import replace

from headrace.service.status import State
from headrace.workers.lanes.offsets import TimestampIndex
from headrace.workers.monitoring.progress import final_counts_only, summed
from headrace.workers.status import WorkerStatus

RUNNING = WorkerStatus(
    "enrich",
    State.RUNNING,
    instance="host-1",
    processed=12,
    lag_seconds=1.25,
    paused_partitions={"clicks/1": ("requested", "lane")},
)


def now(**changes):
    return replace(RUNNING, updated_ms=int(time.time() * 1000), **changes)


def test_several_instances_are_one_with_their_counts_added_and_their_longest_durations():
    one = replace(RUNNING, failed=2, lanes=4, queue_bytes=100, processing_seconds=0.5)
    other = replace(
        RUNNING,
        instance="host-2",
        processed=30,
        lanes=8,
        processing_seconds=2.5,
        lag_seconds=0.5,
        reason="away",
        updated_ms=one.updated_ms + 1000,
        paused_partitions={"clicks/0": ("budget",), "clicks/1": ("budget",)},
    )
    whole = summed("enrich", "2 on Spark", State.DRAINING, [one, other])
    assert (whole.instance, whole.state) == ("2 on Spark", State.DRAINING)
    assert (whole.processed, whole.failed, whole.lanes, whole.queue_bytes) == (42, 2, 12, 100)
    assert (whole.processing_seconds, whole.lag_seconds) == (2.5, 1.25)
    assert (whole.updated_ms, whole.reason) == (one.updated_ms + 500, "host-2: away")
    assert whole.paused_partitions == {
        "clicks/0": ("budget",),
        "clicks/1": ("budget", "lane", "requested"),
    }
    nobody = summed("enrich", "none", State.RUNNING, [])
    assert nobody == WorkerStatus(
        "enrich", State.RUNNING, instance="none", updated_ms=nobody.updated_ms
    )


def test_of_an_instance_that_ended_its_counts_are_left():
    ended = now(state=State.FAILED, reason="killed", lanes=4, lag_records=9, process="h-7")
    left = final_counts_only(ended)
    assert left == replace(ended, lanes=0, lag_records=0, lag_seconds=0.0, paused_partitions={})
    assert left.processed == 12


def test_the_time_of_a_record_is_known_to_a_second_and_forgotten_when_it_is_done():
    times = TimestampIndex()
    assert times.at(0) == -1
    for offset in range(10):
        times.read(offset, 5000 + 400 * offset)
    assert times.at(0) == 5000
    assert times.at(7) == 5000 + 400 * 6
    assert times.at(3) == times.at(7)
    assert times.at(1000) == 5000 + 400 * 9


def test_times_of_clocks_that_differ_and_of_what_is_committed_take_no_more_than_so_much():
    times = TimestampIndex()
    for offset in range(100_000):
        times.read(offset, offset + 5000 * (offset % 2))
    assert len(times._samples) <= 10_000
    times.forget(99_999)
    assert len(times._samples) == 1
    assert abs(times.at(99_999) - 102_500) <= 20_000
