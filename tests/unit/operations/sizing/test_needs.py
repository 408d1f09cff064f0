"""What is needed by a measurement: proportional to the rate, and each figure with its basis."""

import json
import math
from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.in_process import answer, invoke, output
from tests.unit.operations.measuring.samples import measured

from headrace.operations.sizing.needs import Basis, Origins, needs_of
from headrace.operations.sizing.sizes import TopicLoad

RATES = st.integers(1, 10**7).map(Fraction)
WHOLE = {"partitions", "processes", "retention_bytes", "memory_bytes"}
OWN = measured()
MEASURED = Origins()


def load(rate, **changes):
    members = {"consumed_per_second": OWN.consumer_rate, "replication": 3, "brokers": 4}
    return TopicLoad(Fraction(rate), Fraction(500), timedelta(days=7), **(members | changes))


def by_name(given, own=OWN, origins=MEASURED):
    return {need.name: need for need in needs_of(given, own, origins)}


def test_figures_of_a_rate():
    needs = by_name(load(50_000))
    assert float(needs["cores"].amount) == pytest.approx(5, rel=0.01)
    assert needs["processes"].amount == math.ceil(needs["cores"].amount)
    assert needs["memory_bytes"].amount == needs["processes"].amount * 100 * 1024**2
    assert needs["partitions"].amount == 25
    assert needs["network_in_bytes_per_second"].amount == 25_000_000
    assert needs["network_copies_bytes_per_second"].amount == 50_000_000
    assert needs["network_per_broker_bytes_per_second"].amount == 25_000_000
    assert needs["page_cache_bytes_per_broker"].amount == 25_000_000 * 3 / 4 * 30
    assert needs["replicated_bytes"].amount == 25_000_000 * 7 * 86_400 * 3
    assert needs["retention_bytes"].amount == 25_000_000 * 7 * 86_400 / 25


@given(RATES, st.integers(2, 20))
def test_a_multiple_of_the_rate_needs_that_multiple(rate, times):
    once, more = by_name(load(rate)), by_name(load(rate * times))
    for name in once.keys() - WHOLE:
        assert more[name].amount == once[name].amount * times
    for name in ("partitions", "processes"):
        assert once[name].amount <= more[name].amount <= once[name].amount * times


@given(RATES)
def test_whole_things_are_at_least_one_and_enough(rate):
    needs = by_name(load(rate))
    assert needs["partitions"].amount >= 1
    assert needs["partitions"].amount * OWN.consumer_rate >= rate
    assert needs["processes"].amount >= max(1, needs["cores"].amount)
    kept = needs["retention_bytes"].amount * needs["partitions"].amount
    assert kept >= needs["retained_bytes"].amount


@given(RATES, RATES)
def test_the_planned_rate_decides(rate, planned):
    needs = by_name(load(rate, planned_events_per_second=planned))
    assert needs == by_name(load(max(rate, planned)))


@given(st.integers(1, 20).map(Fraction))
def test_compression_divides_what_is_kept_and_sent(compression):
    plain, packed = by_name(load(1000)), by_name(load(1000, compression=compression))
    for name in ("replicated_bytes", "network_in_bytes_per_second"):
        assert packed[name].amount == plain[name].amount / compression
    assert packed["cores"] == plain["cores"]


def test_a_figure_is_assumed_where_an_option_that_it_is_made_of_was_not_given():
    needs = by_name(load(1000), origins=Origins(frozenset({"compression", "brokers"})))
    assert needs["bytes_per_second"].basis is Basis.MEASURED
    assert (needs["retained_bytes"].basis, needs["retained_bytes"].assumed) == (
        Basis.ASSUMED,
        "--compression",
    )
    assert needs["bytes_per_broker"].assumed == "--compression, --brokers"
    assert needs["cores"].basis is Basis.MEASURED
    assert needs["partitions"].basis is Basis.MEASURED


def test_a_figure_of_options_alone_is_given():
    needs = by_name(load(1000), origins=Origins(is_size_measured=False, is_rate_measured=False))
    assert needs["replicated_bytes"].basis is Basis.GIVEN
    assert needs["partitions"].basis is Basis.GIVEN
    assert needs["cores"].basis is Basis.MEASURED


def test_a_pipeline_needs_a_python_worker_more_for_each_further_core():
    own = measured("pipeline", peak_memory_bytes=2000, peak_worker_bytes=300)
    needs = by_name(load(50_000), own)
    assert needs["memory_bytes"].amount == 2000 + 300 * (math.ceil(needs["cores"].amount) - 1)
    assert "processes" not in needs


def test_a_producer_says_nothing_of_partitions():
    own = measured("producer")
    assert own.consumer_rate is None
    needs = by_name(load(1000, consumed_per_second=None), own)
    assert "partitions" not in needs
    assert "one partition" in needs["retention_bytes"].assumed


def test_the_command_shows_each_figure_with_its_basis(tmp_path):
    path = tmp_path / "enrich.json"
    OWN.write(path)
    words = ("size", "--rate", "50k", "--measured", path, "--brokers", 4)
    document = answer(*words)
    assert document["event_bytes"] == 500
    assert document["consumed_per_second"] == 2000
    assert document["needs"]["partitions"] == {
        "amount": 25,
        "unit": "partitions",
        "basis": "measured",
    }
    assert document["needs"]["retained_bytes"]["assumed"] == "--retention, --compression"
    assert document["measured_file"]["name"] == "enrich"
    shown = output(*words)
    assert "retention.bytes of a partition" in shown
    assert "sends: they go to one topic" in shown


def test_options_come_before_the_file(tmp_path):
    path = tmp_path / "enrich.json"
    OWN.write(path)
    words = ("--event-bytes", 100, "--consumer-rate", 10)
    document = answer("size", "--rate", 100, "--measured", path, *words)
    assert (document["event_bytes"], document["partitions"]) == (100, 10)
    assert document["needs"]["bytes_per_second"]["basis"] == "given"


def test_a_file_that_is_no_measurement_names_what_is_wrong(tmp_path):
    path = tmp_path / "enrich.json"
    path.write_text(json.dumps({"format": "headrace-measured-1", "kind": "worker"}))
    error = invoke("size", "--rate", 1, "--measured", path, code=2).output
    assert "headrace measure NAME -o FILE" in error
    both = invoke("size", "--rate", 1, "--measured", path, "--measure", code=2).output
    assert "--measure and --measured both give rates" in both
