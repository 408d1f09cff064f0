"""The pure parts of the comparison with other systems."""

import pytest
from bench.peers import kafka_workers
from bench.peers.figures import Run, hours_to_catch_up, rows
from bench.peers.java_program import PeerMissingError
from bench.peers.systems import SYSTEMS, prepared
from bench.usage import Usage

from headrace.runtime.java import find_java


def run(messages_per_second, cpu_seconds=4.0):
    return Run(1_000_000, 1e6 / messages_per_second, Usage(cpu_seconds, 900.0, 0.0), 0.5, 32)


def test_a_days_lag_is_caught_up_as_in_rtb_houses_table():
    """57.74K messages a second needed 12:43 h, 643.34K 0:46 h."""
    assert hours_to_catch_up(57_740) == pytest.approx(12 + 43 / 60, abs=0.01)
    assert hours_to_catch_up(643_340) == pytest.approx(46 / 60, abs=0.01)


def test_who_is_no_faster_than_what_comes_in_never_catches_up():
    assert hours_to_catch_up(20_000) is None
    found = rows({("slow", 1): [run(20_000), run(30_000)]})
    assert "catch_up_hours" not in {one.metric for one in found}


def test_a_figure_is_one_of_a_system_with_a_number_of_threads():
    measured = {
        ("kafka-workers", 2): [run(90_000), run(80_000), run(100_000, 8.0)],
        ("headrace-fused", 2): [run(400_000)],
        ("kafka-workers", 1): [run(50_000)],
    }
    found = rows(measured)
    assert list(dict.fromkeys((one.system, one.threads) for one in found)) == [
        ("kafka-workers", 1),
        ("kafka-workers", 2),
        ("headrace-fused", 2),
    ]
    by_identity = {(one.system, one.threads, one.metric): one for one in found}
    speed = by_identity["kafka-workers", 2, "messages_per_second"]
    assert (speed.low, speed.median, speed.high) == (80_000, 90_000, 100_000)
    assert by_identity["kafka-workers", 2, "messages_per_second_per_thread"].median == 45_000
    assert by_identity["kafka-workers", 2, "cpu_seconds_per_million"].high == 8.0


def test_a_peer_that_cannot_be_had_is_named_with_what_is_missing(monkeypatch):
    monkeypatch.delenv(kafka_workers.JAR_VARIABLE, raising=False)
    starts, missing = prepared(["headrace-fused", "kafka-workers"], find_java({}))
    assert list(starts) == ["headrace-fused"]
    assert kafka_workers.JAR_VARIABLE in missing["kafka-workers"]


def test_a_jar_that_is_not_there_is_a_missing_peer(monkeypatch, tmp_path):
    monkeypatch.setenv(kafka_workers.JAR_VARIABLE, str(tmp_path / "none.jar"))
    with pytest.raises(PeerMissingError, match=kafka_workers.JAR_VARIABLE):
        kafka_workers.prepare(find_java({}))


def test_every_system_names_its_delivery_guarantee():
    assert all("once" in system.guarantee for system in SYSTEMS.values())
