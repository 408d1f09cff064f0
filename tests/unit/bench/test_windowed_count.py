"""The pure parts of the benchmark of a windowed count."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from bench.flow.part import OURS
from bench.query_traffic import ad_impressions_topic
from bench.report import PAGE
from bench.windowed_count import headrace_count, traffic
from bench.windowed_count.__main__ import PEERS, RATIOS, WindowedCount, with_ratios
from bench.windowed_count.counts import decode_counted
from bench.windowed_count.traffic import ADVERTISERS, ALLOWED_LATENESS, FINAL_AHEAD, WINDOW

from headrace.queries.language import check_query, parse_query

EVENTS = 24_000
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def records():
    return [
        (partition, key.decode(), json.loads(value))
        for partition, key, value in traffic.records(EVENTS, 4)
    ]


def test_the_events_of_an_advertiser_are_in_one_partition_and_have_it_as_their_key(records):
    partitions = {}
    for partition, key, event in records:
        assert key == event["advertiser"]
        assert partitions.setdefault(key, partition) == partition
    assert len(partitions) == ADVERTISERS


def test_the_partitions_have_as_many_events_each(records):
    assert Counter(partition for partition, _, _ in records) == dict.fromkeys(range(4), EVENTS // 4)


def test_the_events_are_those_of_the_class(records):
    schema = ad_impressions_topic("ads", 1).schema
    assert all(set(event) == set(schema.names) for _, _, event in records)


def test_the_expected_counts_are_those_of_a_recount_without_the_final_events(records):
    counted = records[: EVENTS - traffic.final_events(EVENTS)]
    times = [(key, event["event_time"]) for _, key, event in counted]
    assert traffic.counts(EVENTS) == Counter(
        (key, time // MINUTE_MS * MINUTE_MS) for key, time in times
    )


def test_the_final_events_end_all_windows_before_them(records):
    counted = records[: -traffic.final_events(EVENTS)]
    final = records[-traffic.final_events(EVENTS) :]
    assert {key for _, key, _ in final} == {key for _, key, _ in records}
    newest = max(event["event_time"] for _, _, event in counted)
    [final_ms] = {event["event_time"] for _, _, event in final}
    assert final_ms - newest >= (WINDOW + ALLOWED_LATENESS).total_seconds() * 1000
    assert final_ms - newest <= FINAL_AHEAD.total_seconds() * 1000 + MINUTE_MS


def test_the_density_of_events_does_not_depend_on_their_number():
    spans = [
        times[-1] - times[0]
        for count in (EVENTS, 2 * EVENTS)
        if (times := sorted(begin for _, begin in traffic.counts(count)))
    ]
    assert spans[1] == pytest.approx(2 * spans[0], abs=2 * MINUTE_MS)


def test_the_query_fits_the_events_and_its_windows_have_room_for_all_advertisers():
    text = headrace_count.QUERY.format(topic="ads")
    query = parse_query(text)
    check_query(query, ad_impressions_topic("ads", 1).schema, text)
    assert (query.window, query.allowed_lateness) == (WINDOW, ALLOWED_LATENESS)
    assert query.max_groups == ADVERTISERS


def result(**changed):
    """Returns the record of a result."""
    members = {
        "query": "counts",
        "registered": "2026-05-01T10:00:00Z",
        "revision": 1,
        "begin": "2019-11-24T10:01:00Z",
        "end": "2019-11-24T10:02:00Z",
        "emission": 1,
        "kind": "final",
        "facets": {"advertiser": "advertiser-7"},
        "is_other": False,
        "values": {"events": 17},
        "events": 900,
    }
    return json.dumps(members | changed).encode()


def test_results_of_all_systems_are_read_alike():
    counted = {"advertiser": "advertiser-7", "begin_ms": 1574589660000, "count": 17}
    assert headrace_count.decode_count(result()) == decode_counted(json.dumps(counted).encode())


@pytest.mark.parametrize("changed", [{"kind": "early"}, {"is_other": True, "facets": {}}])
def test_a_result_that_is_no_final_one_of_an_advertiser_is_wrong(changed):
    with pytest.raises(ValueError, match="is no final result of an advertiser"):
        headrace_count.decode_count(result(**changed))


def test_speed_is_compared_with_that_of_each_peer_in_the_same_round():
    speeds = {OURS: (300.0, 200.0), "plain-spark": (150.0, 200.0), "quix-streams": (30.0, 50.0)}
    runs = {
        (system, 2): [{"messages_per_second": speed} for speed in rounds]
        for system, rounds in speeds.items()
    }
    compared = with_ratios(runs)
    ratios = [[run[ratio] for ratio in RATIOS.values()] for run in compared[OURS, 2]]
    assert ratios == [[2.0, 10.0], [1.0, 4.0]]
    assert compared["plain-spark", 2] == runs["plain-spark", 2]


def test_without_a_peer_there_is_no_ratio_to_it():
    runs = {(OURS, 2): [{"messages_per_second": 300.0}]}
    assert with_ratios(runs) == runs


def test_each_system_tells_its_guarantee():
    systems = WindowedCount(2_000).systems
    assert {name: system.guarantee for name, system in systems.items()} == {
        OURS: "exactly once"
    } | dict.fromkeys(PEERS, "at least once")


def test_the_benchmark_has_a_place_on_the_page():
    text = PAGE.read_text()
    for mark in ("begin", "end"):
        assert f"<!-- {WindowedCount.benchmark}: {mark} -->" in text
