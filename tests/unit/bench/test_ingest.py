"""The pure parts of ingest's benchmark."""

from bench.ingest.__main__ import Run, rows

from headrace.runtime.process_tree import Usage


def run(events, cpu_seconds):
    load = {"Events": events, "Requests": events / 100, "Seconds": 2.0, "CPUSeconds": 0.5}
    latencies = {"P50": 10.0, "P99": 20.0}
    return Run(load | latencies, Usage(cpu_seconds, 200.0, 100.0), 0.25)


def test_cpu_is_counted_by_event_and_the_ratio_within_each_round():
    measured = {
        "headrace": [run(400_000, 4.0), run(200_000, 1.0)],
        "node-fastify": [run(200_000, 4.0), run(200_000, 4.0)],
    }
    found = {(one.system, one.metric): one for one in rows("ingest-100", measured)}
    assert found["headrace", "events_per_second"].high == 200_000
    assert found["headrace", "requests_per_second"].low == 1_000
    assert found["headrace", "cpu_seconds_per_million"].low == 5.0
    assert found["headrace", "events_per_core_second"].high == 200_000
    ratio = found["node-fastify", "headrace_is"]
    assert (ratio.low, ratio.median, ratio.high) == (1.0, 1.5, 2.0)
    assert ("headrace", "headrace_is") not in found
