"""The pure parts of the benchmarks of mirrors and mergers."""

import pytest
from bench import headrace_site, merger, mirror, mirror_copies
from bench.driver import OutputWrongError
from bench.mirror_copies import Content, Copy, check, copy_name
from bench.peers import figures, mirror_maker
from bench.peers.java_program import locked_version
from bench.report import PAGE
from bench.setup import Setup

from headrace import Merger, Mirror
from headrace.project.check import load_project
from headrace.settings import load_settings

RUN = "headrace-mirror-2-round-1"


@pytest.fixture
def setup(tmp_path):
    return Setup(
        bootstrap="127.0.0.1:9092",
        topic="impressions",
        messages=100,
        partitions=4,
        threads=2,
        batch_records=0,
        heap_mb=64,
        java={},
        connector=(),
        logs=tmp_path,
    )


def content(*records):
    held = Content()
    for time_ms, value in records:
        held.add(time_ms, value)
    return held


def test_equal_records_in_equal_order_pass():
    topic = [content((1, b"a"), (2, b"b")), content()]
    check([content((1, b"a"), (2, b"b")), content()], topic)


@pytest.mark.parametrize(
    ("copied", "reason"),
    [
        ([(1, b"a")], "partition 1 has 1 of 2"),
        ([(1, b"a"), (2, b"b"), (2, b"b")], "partition 1 has 3 of 2"),
        ([(2, b"b"), (1, b"a")], "another order"),
        ([(1, b"a"), (3, b"b")], "or others"),
        ([(1, b"a2 1 b"), (2, b"")], "or others"),
    ],
)
def test_a_record_missing_or_twice_or_changed_or_out_of_order_fails(copied, reason):
    topic = [content(), content((1, b"a"), (2, b"b"))]
    with pytest.raises(OutputWrongError, match=reason):
        check([content(), content(*copied)], topic)


@pytest.mark.parametrize(
    ("stable", "held", "committed"), [(10, 9, 40), (25, 24, 96), (27, 25, 100)]
)
def test_markers_of_transactions_do_not_complete_a_copy(monkeypatch, stable, held, committed):
    """Offsets count markers; at the end the records themselves are counted."""
    monkeypatch.setattr(
        mirror_copies, "latest_offsets", lambda _, every: dict.fromkeys(every, (stable, 0))
    )
    parts = [Content(records=held) for _ in range(4)]
    monkeypatch.setattr(mirror_copies, "contents", lambda *_: parts)
    assert Copy("127.0.0.1:9092", "far.impressions", 4, messages=100).committed() == committed


def test_headraces_project_declares_the_mirror_and_the_topic_of_its_run(setup, tmp_path):
    for name, text in headrace_site.mirror_project(setup, "127.0.0.1:9093", RUN).items():
        (tmp_path / name).write_text(text)
    project = load_project(load_settings(tmp_path, {}))
    declared = project.declared(Mirror)[RUN]
    assert {name: topic.name for name, topic in declared.topics.items()} == {
        "impressions": copy_name(RUN, "impressions")
    }


def test_headraces_project_declares_the_merger_and_the_topics_of_its_run(setup, tmp_path):
    for name, text in headrace_site.merger_project(setup, RUN).items():
        (tmp_path / name).write_text(text)
    declared = load_project(load_settings(tmp_path, {})).declared(Merger)[RUN]
    assert [topic.name for topic in declared.sources] == list(headrace_site.sources("impressions"))
    assert declared.target.name == copy_name(RUN, "impressions")


def test_mirror_makers_alias_names_the_topic_of_its_run_and_its_tasks_are_the_threads(setup):
    told = mirror_maker.connector(setup, "127.0.0.1:9093", RUN, exactly_once=False)
    assert f"{told['source.cluster.alias']}.{told['topics']}" == copy_name(RUN, "impressions")
    assert told["source.cluster.bootstrap.servers"] == "127.0.0.1:9092"
    assert told["target.cluster.bootstrap.servers"] == "127.0.0.1:9093"
    assert told["tasks.max"] == "2"
    assert "exactly.once.support" not in told


def test_mirror_makers_transactions_take_as_long_as_headraces(setup):
    told = mirror_maker.connector(setup, "127.0.0.1:9093", RUN, exactly_once=True)
    assert told["exactly.once.support"] == "required"
    assert told["transaction.boundary.interval.ms"] == "200"
    worker = mirror_maker.worker_config("exactly", 2, exactly_once=True)
    assert worker["exactly.once.source.support"] == "enabled"
    assert (
        worker["group.id"]
        != mirror_maker.worker_config("exactly", 1, exactly_once=True)["group.id"]
    )


def test_mirror_maker_is_of_the_version_of_its_worker():
    worker = locked_version("connect", "connect-runtime")
    assert locked_version("mirror-maker", "connect-mirror") == worker


def test_speed_is_compared_within_a_round_with_as_many_threads():
    speeds = {
        ("headrace", 1): (300, 200),
        ("mirrormaker", 1): (100, 200),
        ("headrace", 2): (400,),
    }
    runs = {key: [{"messages_per_second": one} for one in found] for key, found in speeds.items()}
    rows = figures.rows("mirror", "threads", mirror.UNITS, mirror.with_ratios(runs))
    [ratio] = [one for one in rows if one.metric == "times_mirrormaker"]
    assert (ratio.system, ratio.threads) == ("headrace", 1)
    assert (ratio.low, ratio.median, ratio.high) == (1, 2, 3)


def test_every_system_names_its_delivery_guarantee():
    assert all("once" in system.guarantee for system in mirror.SYSTEMS.values())


def test_the_page_has_a_place_for_the_table():
    text = PAGE.read_text()
    for benchmark in (mirror.BENCHMARK, merger.BENCHMARK):
        assert f"<!-- {benchmark}: begin -->" in text
        assert f"<!-- {benchmark}: end -->" in text
