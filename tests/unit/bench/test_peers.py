"""The pure parts of the comparison with other systems."""

import pytest
from bench.peers import kafka_workers
from bench.peers.contest import Findings, prepared
from bench.peers.figures import Run
from bench.peers.programs import PeerMissingError
from bench.peers.record.__main__ import PARTITIONS, THREADS, Worked, ideal, messages_of
from bench.peers.systems import SYSTEMS
from bench.peers.writer import Written, hours_to_catch_up, rows
from rich.console import Console

from headrace.runtime.java.installation import find_java
from headrace.runtime.process_tree import Usage


def run(messages_per_second, cpu_seconds=4.0):
    return Run(1_000_000, 1e6 / messages_per_second, Usage(cpu_seconds, 900.0, 0.0), 0.5)


def written(threads, *runs):
    return [Written(one, threads, files=32).figures() for one in runs]


def test_a_days_lag_is_caught_up_as_in_rtb_houses_table():
    """57.74K messages a second needed 12:43 h, 643.34K 0:46 h."""
    assert hours_to_catch_up(57_740) == pytest.approx(12 + 43 / 60, abs=0.01)
    assert hours_to_catch_up(643_340) == pytest.approx(46 / 60, abs=0.01)


def test_who_is_no_faster_than_what_comes_in_never_catches_up():
    assert hours_to_catch_up(20_000) is None
    found = rows({("slow", 1): written(1, run(20_000), run(30_000))})
    assert "catch_up_hours" not in {one.metric for one in found}


def test_a_figure_is_one_of_a_system_with_a_number_of_threads():
    measured = {
        ("kafka-workers", 2): written(2, run(90_000), run(80_000), run(100_000, 8.0)),
        ("headrace-fused", 2): written(2, run(400_000)),
        ("kafka-workers", 1): written(1, run(50_000)),
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
    systems = {name: SYSTEMS[name].prepare for name in ("headrace-fused", "kafka-workers")}
    starts, missing = prepared(systems, find_java({}), Console(quiet=True))
    assert list(starts) == ["headrace-fused"]
    assert kafka_workers.JAR_VARIABLE in missing["kafka-workers"]


def test_a_jar_that_is_not_there_is_a_missing_peer(monkeypatch, tmp_path):
    monkeypatch.setenv(kafka_workers.JAR_VARIABLE, str(tmp_path / "none.jar"))
    with pytest.raises(PeerMissingError, match=kafka_workers.JAR_VARIABLE):
        kafka_workers.prepare(find_java({}))


def test_every_system_names_its_delivery_guarantee():
    assert all("once" in system.guarantee for system in SYSTEMS.values())


def test_what_failed_and_what_was_missing_is_said_with_its_reason():
    findings = Findings({}, {("flink-sql", 2): "Traceback\nit broke"}, {"kafka-workers": "no jar"})
    assert findings.without_figures("threads") == {
        "kafka-workers": "no jar",
        "flink-sql with 2 threads": "it broke",
    }


def test_lanes_bound_calls_and_processors_bound_work():
    assert ideal("call", 64) == 12_800
    assert ideal("cpu", 512) == 1000 * THREADS
    assert ideal("cpu", 1) == 1000


def test_a_run_takes_about_as_long_whatever_the_lanes_and_is_divided_evenly():
    for lanes in (4, 64):
        messages = messages_of("call", lanes, 10)
        assert messages == 10 * ideal("call", lanes)
        assert messages % PARTITIONS == 0
    assert messages_of("call", 512, 10) < 10 * ideal("call", 512)


def test_how_near_a_run_came_is_a_share_of_the_ideal():
    assert Worked(run(6_400), 12_800).figures()["of_ideal"] == 50
