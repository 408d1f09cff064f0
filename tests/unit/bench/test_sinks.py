"""The pure parts of the benchmarks of sinks and of formats."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench import formats_lake, headrace_sinks
from bench.driver import OutputWrongError
from bench.events import Impression, events
from bench.peers import figures, jdbc_sink
from bench.peers.figures import Measurement, Run
from bench.report import PAGE
from bench.setup import Setup
from bench.sink_targets import COLUMNS, Target, check, jdbc_url, table_name
from bench.sinks import SINKS, SYSTEMS, UNITS, database_figures
from bench.usage import Usage
from tests.mock_registry import MockRegistry

from headrace.model import event_schema
from headrace.pipelines.source.decode import decoder_for

FIELDS = event_schema(Impression).names


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

    database_pid = None

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
    assert set(found) == set(UNITS)
    assert (found["messages_per_second"], found["cpu_us_per_message"]) == (50_000, 8.0)
    assert (found["broker_cpu_us_per_message"], found["database_cpu_us_per_message"]) == (1, 4)


def test_a_sink_without_a_database_has_no_figure_of_one():
    run = Run(500_000, 10.0, Usage(4.0, 900.0, 0.0), 0.5)
    runs = {("headrace-fused", 2): [Measurement(run).figures()]}
    metrics = [one.metric for one in figures.rows("sinks-kafka", "threads", UNITS, runs)]
    assert metrics == [name for name in UNITS if name != "database_cpu_us_per_message"]


def test_every_system_tells_its_guarantee_for_the_sinks_that_it_writes_to():
    assert all(set(system.guarantees) <= set(SINKS) for system in SYSTEMS.values())
    assert set(SYSTEMS["headrace-fused"].guarantees) == set(SINKS)
    for sink in SINKS:
        told = [system.guarantees[sink] for system in SYSTEMS.values() if sink in system.guarantees]
        assert len(told) >= 3
        assert all("once" in guarantee for guarantee in told)


def test_tables_and_the_schema_of_kafka_connect_have_the_fields_of_the_events():
    assert tuple(COLUMNS) == FIELDS
    assert tuple(field["field"] for field in jdbc_sink.schema()["fields"]) == FIELDS


@pytest.mark.parametrize("sink", SINKS)
def test_headrace_writes_to_the_topic_or_table_of_its_run(setup, sink):
    target = headrace_sinks.SINKS[sink](setup, Path("headrace-fused-round-1")).target
    assert target in {"headrace-fused-round-1", table_name("headrace-fused-round-1")}
    assert ("_" in target) == sink.startswith("postgres")


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
