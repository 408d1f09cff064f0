"""What an instance says of itself, to files, to people and to Prometheus."""

import time
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from headrace.metrics import PARTITION_METRICS, WORKER_METRICS
from headrace.runtime.prometheus import CONTENT_TYPE, MetricsServer
from headrace.workers.lanes.timestamps import TimestampIndex
from headrace.workers.monitoring.progress import (
    STALE_AFTER_SECONDS,
    PartitionProgress,
    WorkerProgress,
    WorkerStatusFolder,
    final_counts_only,
    summed,
)
from headrace.workers.monitoring.prometheus import exposition
from headrace.workers.states import InstanceState

RUNNING = WorkerProgress(
    "enrich",
    "host-1",
    InstanceState.RUNNING,
    processed=12,
    lag_seconds=1.25,
    paused_partitions={"clicks/1": ("requested", "lane")},
)
PARTITION = PartitionProgress(
    "clicks", 1, ("requested",), 120, 100, 90, 1_700_000_000_500, 2048, 7, 33, 1.25
)


def now(**changes):
    return replace(RUNNING, updated_ms=int(time.time() * 1000), **changes)


def test_a_status_is_read_as_it_was_written(tmp_path):
    folder = WorkerStatusFolder(tmp_path / "workers")
    assert folder.read() == []
    folder.write(now())
    last = now(processed=13)
    folder.write(last)
    assert folder.read() == [last]


def test_a_torn_status_is_left_out_and_keeps_no_worker_from_starting(tmp_path):
    folder = WorkerStatusFolder(tmp_path)
    folder.write(now(instance="host-2"))
    (tmp_path / "enrich.host-1.json").write_bytes(b"")
    folder.forget("enrich")
    assert [progress.instance for progress in folder.read()] == ["host-2"]


def test_an_instance_that_was_killed_is_shown_as_failed_after_a_while(tmp_path):
    folder = WorkerStatusFolder(tmp_path)
    long_ago = int((time.time() - 2 * STALE_AFTER_SECONDS) * 1000)
    folder.write(replace(RUNNING, updated_ms=long_ago))
    folder.write(replace(RUNNING, instance="host-2", updated_ms=long_ago, state="closed"))
    killed, closed = folder.read()
    assert (killed.state, closed.state) == (InstanceState.FAILED, InstanceState.CLOSED)
    assert "killed" in killed.reason


def test_instances_that_ended_are_forgotten_when_their_worker_starts_again(tmp_path):
    folder = WorkerStatusFolder(tmp_path)
    folder.write(now(state=InstanceState.CLOSED))
    folder.write(now(instance="host-2"))
    folder.write(now(worker="other", state=InstanceState.CLOSED))
    folder.forget("enrich")
    assert [(one.worker, one.instance) for one in folder.read()] == [
        ("enrich", "host-2"),
        ("other", "host-1"),
    ]


def test_prometheus_is_told_every_metric_with_its_labels():
    lines = exposition([(RUNNING, [PARTITION])]).splitlines()
    assert 'headrace_worker_processed_total{worker="enrich",instance="host-1"} 12' in lines
    assert 'headrace_worker_lag_seconds{worker="enrich",instance="host-1"} 1.250' in lines
    who = 'worker="enrich",instance="host-1",topic="clicks",partition="1"'
    assert f'headrace_worker_partition_paused{{{who},reason="requested"}} 1' in lines
    assert f'headrace_worker_partition_paused{{{who},reason="lane"}} 0' in lines
    assert f"headrace_worker_partition_committed_offset{{{who}}} 90" in lines
    seconds = "headrace_worker_partition_processing_timestamp_seconds"
    assert f"{seconds}{{{who}}} 1700000000.500" in lines
    assert 'headrace_worker_state{worker="enrich",instance="host-1",state="running"} 1' in lines
    helped = {line.split()[2] for line in lines if line.startswith("# HELP")}
    assert len(helped) == len(WORKER_METRICS) + len(PARTITION_METRICS) + 1


def test_every_metric_is_explained_once_above_the_samples_of_all_instances():
    other = replace(RUNNING, instance="host-2", processed=7)
    lines = exposition([(RUNNING, [PARTITION]), (other, [replace(PARTITION, partition=2)])])
    lines = lines.splitlines()
    explained = [line for line in lines if line.startswith("#")]
    assert len(explained) == len(set(explained))
    at = lines.index("# TYPE headrace_worker_processed_total counter")
    assert lines[at + 1 : at + 3] == [
        'headrace_worker_processed_total{worker="enrich",instance="host-1"} 12',
        'headrace_worker_processed_total{worker="enrich",instance="host-2"} 7',
    ]
    at = lines.index("# TYPE headrace_worker_partition_lag_records gauge")
    assert 'instance="host-1",topic="clicks",partition="1"} 33' in lines[at + 1]
    assert 'instance="host-2",topic="clicks",partition="2"} 33' in lines[at + 2]
    assert 'headrace_worker_state{worker="enrich",instance="host-2",state="running"} 1' in lines


def test_without_instances_metrics_are_explained_all_the_same():
    assert all(line.startswith("#") for line in exposition([]).splitlines())


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
    whole = summed("enrich", "2 on Spark", InstanceState.DRAINING, [one, other])
    assert (whole.instance, whole.state) == ("2 on Spark", InstanceState.DRAINING)
    assert (whole.processed, whole.failed, whole.lanes, whole.queue_bytes) == (42, 2, 12, 100)
    assert (whole.processing_seconds, whole.lag_seconds) == (2.5, 1.25)
    assert (whole.updated_ms, whole.reason) == (one.updated_ms + 500, "host-2: away")
    assert whole.paused_partitions == {
        "clicks/0": ("budget",),
        "clicks/1": ("budget", "lane", "requested"),
    }
    nobody = summed("enrich", "none", InstanceState.RUNNING, [])
    assert nobody == WorkerProgress(
        "enrich", "none", InstanceState.RUNNING, updated_ms=nobody.updated_ms
    )


def test_of_an_instance_that_ended_its_counts_are_left():
    ended = now(state=InstanceState.FAILED, reason="killed", lanes=4, lag_records=9, process="h-7")
    left = final_counts_only(ended)
    assert left == replace(ended, lanes=0, lag_records=0, lag_seconds=0.0, paused_partitions={})
    assert left.processed == 12


def test_labels_are_escaped():
    text = exposition([(replace(RUNNING, instance='a"b\\c\n'), [])])
    assert 'instance="a\\"b\\\\c\\n"' in text


def test_metrics_are_served_over_http():
    server = MetricsServer("127.0.0.1", 0)
    try:
        server.publish(exposition([(RUNNING, [PARTITION])]))
        address = f"http://127.0.0.1:{server.port}"
        with urllib.request.urlopen(f"{address}/metrics") as answer:
            assert answer.headers["Content-Type"] == CONTENT_TYPE
            assert answer.read().decode() == exposition([(RUNNING, [PARTITION])])
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/else")
        refused.value.close()
        assert refused.value.code == 404
    finally:
        server.close()


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
