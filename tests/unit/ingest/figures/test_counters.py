"""Counts over workers."""

from datetime import timedelta

import pytest

from headrace.ingest.figures.counters import Counters
from headrace.ingest.figures.service_metrics import (
    EVENTS,
    LATENCY,
    SECONDS,
    count_latency,
    count_names,
    metric_lines,
    spool_lines,
)
from headrace.ingest.spool.spool import SpoolStats

NAMES = [("a",), ("b", "x")]


def test_counts_of_all_workers_are_added(tmp_path):
    first, second = Counters(tmp_path, NAMES), Counters(tmp_path, NAMES)
    first.add(("a",), 2)
    second.add(("a",))
    second.add(("b", "x"), 5)
    assert first.totals() == second.totals() == {("a",): 3, ("b", "x"): 5}
    first.close()
    second.close()


def test_a_function_that_adds_to_several_counts_adds_to_each(tmp_path):
    counters = Counters(tmp_path, NAMES)
    add = counters.adder(("a",), ("b", "x"))
    counters.add(("a",))
    add(2)
    add(3)
    assert counters.totals() == {("a",): 6, ("b", "x"): 5}
    with pytest.raises(KeyError):
        counters.adder(("c",))
    counters.close()


def test_the_counts_of_a_worker_that_ended_go_on(tmp_path):
    first = Counters(tmp_path, NAMES)
    first.add(("a",), 2)
    first.close()
    second = Counters(tmp_path, NAMES)
    second.add(("a",))
    assert second.totals()["a",] == 3
    assert len(list(tmp_path.iterdir())) == 1
    second.close()


def test_a_histogram_is_cumulative(tmp_path):
    counters = Counters(tmp_path, count_names(["t"]))
    for seconds in (0.001, 0.003, 7.0):
        count_latency(counters, seconds)
    lines = [line for line in metric_lines(counters.totals()) if line.startswith(LATENCY)]
    assert lines[:2] == [f'{LATENCY}_bucket{{le="0.002"}} 1', f'{LATENCY}_bucket{{le="0.005"}} 2']
    assert lines[len(SECONDS) :] == [
        f'{LATENCY}_bucket{{le="+Inf"}} 3',
        f"{LATENCY}_sum 7.004",
        f"{LATENCY}_count 3",
    ]
    counters.close()


def test_labels_are_named(tmp_path):
    counters = Counters(tmp_path, count_names(["t"]))
    counters.add((EVENTS, "t", "accepted"), 3)
    lines = list(metric_lines(counters.totals()))
    assert f'{EVENTS}{{topic="t",outcome="accepted"}} 3' in lines
    counters.close()


def test_a_figure_that_falls_is_that_of_all_workers(tmp_path):
    first, second = Counters(tmp_path, NAMES), Counters(tmp_path, NAMES)
    first.put(("a",), 7)
    second.put(("a",), 5)
    first.put(("a",), 2)
    assert first.totals()["a",] == 7
    first.close()
    second.close()


def test_spools_are_told_by_topic_and_in_seconds():
    lines = list(spool_lines({"t": SpoolStats(7, 4096, 9999, timedelta(seconds=90), 2, 1, 3)}))
    assert [line for line in lines if not line.startswith("#")] == [
        'headrace_ingest_spool_events{topic="t"} 7',
        'headrace_ingest_spool_bytes{topic="t"} 4096',
        'headrace_ingest_spool_budget_bytes{topic="t"} 9999',
        'headrace_ingest_spool_oldest_seconds{topic="t"} 90.0',
        'headrace_ingest_spool_rejected_total{topic="t"} 3',
        'headrace_ingest_spool_missing_total{topic="t"} 1',
        'headrace_ingest_spool_quarantine_files{topic="t"} 2',
    ]
    assert list(spool_lines({})) == []
