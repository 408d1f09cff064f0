"""The pure parts of the benchmarks of sinks and of formats."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from bench import formats_lake, headrace_sinks, headrace_writer, spark_bulks
from bench.driver import OutputWrongError
from bench.events import Impression, events
from bench.peers import bulk_loader, figures, jdbc_sink
from bench.peers.figures import Measurement, Run
from bench.report import PAGE
from bench.setup import Setup
from bench.sink_targets import COLUMNS, Target, check, jdbc_url
from bench.sinks import (
    SINKS,
    SYSTEMS,
    TIMES_DELTA,
    TIMES_LOADER,
    UNITS,
    database_figures,
    topic_of,
    with_ratios,
)
from opensearchpy import helpers
from tests.mock_registry import MockRegistry

from headrace.model import event_schema
from headrace.pipelines.source.decode import decoder_for
from headrace.runtime.process_tree import Usage

FIELDS = event_schema(Impression).names
RATIOS = {TIMES_DELTA, TIMES_LOADER}


@pytest.fixture
def setup(tmp_path):
    return Setup(
        bootstrap="127.0.0.1:9092",
        topic="impressions",
        messages=100,
        partitions=4,
        threads=2,
        batch_records=20,
        heap_mb=64,
        java={},
        connector=(),
        logs=tmp_path,
    )


class Held(Target):
    """Holds what it is told."""

    def __init__(self, *held):
        self.held = held

    def create(self, name): ...

    def remove(self, name): ...

    def event_ids(self, name):
        assert name == "run-1"
        return self.held


def test_every_event_once_passes():
    check(Held(3, 3), "run-1", 3)


@pytest.mark.parametrize("held", [(2, 2), (4, 3), (3, 2), (4, 4)])
def test_an_event_missing_or_twice_or_unknown_fails(held):
    with pytest.raises(OutputWrongError, match="3 events gave"):
        check(Held(*held), "run-1", 3)


def test_cpu_is_counted_by_message_for_the_system_the_broker_and_the_database():
    run = Run(500_000, 10.0, Usage(4.0, 900.0, 0.0), 0.5, 2.0)
    found = Measurement(run, database_figures(run)).figures()
    assert set(found) == UNITS.keys() - RATIOS
    assert (found["messages_per_second"], found["cpu_us_per_message"]) == (50_000, 8.0)
    assert (found["broker_cpu_us_per_message"], found["database_cpu_us_per_message"]) == (1, 4)


def test_a_sink_without_a_database_has_no_figure_of_one():
    run = Run(500_000, 10.0, Usage(4.0, 900.0, 0.0), 0.5)
    runs = {("headrace-fused", 2): [Measurement(run).figures()]}
    metrics = [one.metric for one in figures.rows("sinks-kafka", "threads", UNITS, runs)]
    assert metrics == [
        name for name in UNITS if name not in {*RATIOS, "database_cpu_us_per_message"}
    ]


def test_speeds_are_compared_within_a_round_with_systems_that_have_figures():
    references = SINKS["iceberg"].references
    speeds = {"headrace-fused": (90, 100), "headrace-delta-fused": (100, 80)}
    speeds["headrace-spark-step"] = (50, 60)
    runs = {
        (name, 2): [{"messages_per_second": speed} for speed in rounds]
        for name, rounds in speeds.items()
    }
    found = with_ratios(runs, references)
    ratios = [figures[TIMES_DELTA] for figures in found["headrace-fused", 2]]
    assert ratios == [0.9, 1.25]
    assert found["headrace-spark-step", 2] == runs["headrace-spark-step", 2]
    assert TIMES_DELTA not in runs["headrace-fused", 2][0]


def test_what_speeds_are_compared_with_writes_to_the_same_sink():
    for name, sink in SINKS.items():
        for systems in sink.references.values():
            for system in {*systems, *systems.values()}:
                assert name in SYSTEMS[system].guarantees


def test_every_system_tells_its_guarantee_for_the_sinks_that_it_writes_to():
    assert all(system.guarantees.keys() <= SINKS.keys() for system in SYSTEMS.values())
    assert SYSTEMS["headrace-fused"].guarantees.keys() == SINKS.keys()
    for sink in SINKS:
        told = [system.guarantees[sink] for system in SYSTEMS.values() if sink in system.guarantees]
        assert len(told) >= (2 if sink == "bigquery" else 3)
        assert all("once" in guarantee for guarantee in told)


def test_tables_and_the_schema_of_kafka_connect_have_the_fields_of_the_events():
    assert tuple(COLUMNS) == FIELDS
    assert tuple(field["field"] for field in jdbc_sink.schema()["fields"]) == FIELDS


@pytest.mark.parametrize("sink", SINKS)
def test_headrace_writes_to_the_topic_table_or_index_of_its_run(setup, sink):
    target = headrace_sinks.SINKS[sink](setup, Path("headrace-fused-round-1")).target
    if sink == "iceberg":  # in the folder of the run
        assert target == headrace_writer.TABLE
    else:
        is_table = sink.startswith("postgres") or sink == "bigquery"
        assert target == ("headrace_fused_round_1" if is_table else "headrace-fused-round-1")


def test_the_tables_of_iceberg_and_delta_differ_in_their_format_alone(setup):
    iceberg, delta = (
        headrace_sinks.SINKS[sink](setup, Path("round-1")) for sink in ("iceberg", "delta")
    )
    assert replace(delta, format=iceberg.format) == iceberg
    assert delta.format != iceberg.format


def test_sinks_with_as_many_messages_share_a_topic():
    assert topic_of(100) == topic_of(100) != topic_of(200)


def test_a_bulk_has_every_event_with_its_id_and_its_time_as_text():
    event = b'{"event_id":"a","event_time":1574589600120,"position":1}'
    action, document = map(json.loads, bulk_loader.document(event).splitlines())
    assert action == {"create": {"_id": "a"}}
    told = {"event_id": "a", "event_time": "2019-11-24T10:00:00.120Z", "position": 1}
    assert document == told


def test_bulks_are_files_of_a_limited_size_that_hold_every_document(monkeypatch, tmp_path):
    documents = [bulk_loader.document(event) for event in events(50)]
    monkeypatch.setattr(bulk_loader, "BULK_BYTES", 10 * len(documents[0]))
    counts = list(bulk_loader.write_bulks(tmp_path, documents))
    bulks = [(tmp_path / str(number)).read_bytes() for number in range(len(counts))]
    assert b"".join(bulks) == b"".join(documents)
    assert [bulk.count(b"\n") for bulk in bulks] == [2 * count for count in counts]
    assert max(map(len, bulks)) <= bulk_loader.BULK_BYTES


@pytest.mark.parametrize(("status", "is_refused"), [(409, False), (400, True)])
def test_spark_takes_a_document_that_is_there_for_one_that_it_has_written(
    monkeypatch, status, is_refused
):
    answers = [(True, {"create": {"status": 201}}), (False, {"create": {"status": status}})]
    monkeypatch.setattr(helpers, "parallel_bulk", lambda *_, **__: answers)
    with pytest.raises(RuntimeError) if is_refused else nullcontext():
        spark_bulks.load(iter(()), url="http://127.0.0.1:1", index="round-1")


@pytest.mark.parametrize("sink", jdbc_sink.MODES)
def test_connects_tasks_are_the_threads_and_its_table_that_of_the_run(setup, sink):
    url = "postgresql://headrace@127.0.0.1:5432/postgres"
    told = jdbc_sink.connector(replace(setup, threads=3), "round-1", sink, url)
    assert told["tasks.max"] == "3"
    assert told["collection.name.format"] == "round_1"
    assert told["insert.mode"] == {"append": "insert"}.get(sink[9:], sink[9:])
    assert json.loads(told["value.converter.schema.content"]) == jdbc_sink.schema()


def test_jdbc_is_told_the_same_database():
    url = jdbc_url("postgresql://headrace@127.0.0.1:5432/postgres")
    assert url.startswith("jdbc:postgresql://127.0.0.1:5432/postgres?user=headrace&")


@pytest.mark.parametrize("benchmark", [formats_lake.BENCHMARK, *map("sinks-{}".format, SINKS)])
def test_the_page_has_a_place_for_each_table(benchmark):
    """Else a benchmark fails at its end, when its table is to be written."""
    text = PAGE.read_text()
    assert f"<!-- {benchmark}: begin -->" in text
    assert f"<!-- {benchmark}: end -->" in text


def test_the_topic_of_each_format_holds_events_that_its_decoder_takes():
    with MockRegistry().running() as registry:
        encoders = formats_lake.encoders(registry.settings)
        for name, encode in encoders.items():
            topic = formats_lake.topic(name)
            decoder = decoder_for(topic.format, topic.schema, registry.settings)
            decoded = decoder.decode([encode(event) for event in events(50)])
            assert not decoded.rejected
            assert decoded.rows.num_rows == 50
