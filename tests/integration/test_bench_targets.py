"""What the benchmark of sinks counts, in a real topic, table and index."""

from types import SimpleNamespace

import psycopg
import pyarrow as pa
import pytest
from bench import headrace_sinks, lake_target, opensearch_target
from bench.bigquery_target import BigQueryTarget
from bench.cluster import Broker
from bench.driver import OutputWrongError
from bench.opensearch_target import IndexTarget
from bench.peers.opensearch import Client
from bench.sink_targets import COLUMNS, TableTarget, TopicTarget, check
from bench.writer import event_ids

from headrace.kafka.client.clients import client_config, connected_producer
from headrace.settings.model import KafkaSettings
from headrace.sinks.api import SinkContext
from headrace.testing.sink_lab import batch

EVENT = {
    "event_id": "a",
    "event_time": "2019-11-24T10:00:00Z",
    "category": "c",
    "campaign": "c",
    "item_id": 1,
    "position": 1,
    "clicked": False,
    "propensity": 0.5,
    "user_group": "g",
    "user_segment": "s",
}


def insert(url, name, *ids):
    marks = ", ".join(["%s"] * len(COLUMNS))
    with psycopg.connect(url) as connection:
        for event_id in ids:
            values = list((EVENT | {"event_id": event_id}).values())
            connection.execute(f"INSERT INTO {name} VALUES ({marks})", values)


@pytest.mark.parametrize("is_keyed", [False, True])
def test_rows_of_a_table_are_counted(postgres, is_keyed):
    target = TableTarget(postgres, is_keyed)
    target.create("bench-round-1")
    insert(postgres.url, "bench_round_1", "a", "b")
    check(target, "bench-round-1", 2)
    if is_keyed:
        with pytest.raises(psycopg.errors.UniqueViolation):
            insert(postgres.url, "bench_round_1", "b")
    else:
        insert(postgres.url, "bench_round_1", "b")
        with pytest.raises(OutputWrongError, match="2 events gave 3 rows with 2 event ids"):
            check(target, "bench-round-1", 2)
    target.remove("bench-round-1")
    target.create("bench-round-1")
    check(target, "bench-round-1", 0)
    target.remove("bench-round-1")


def test_a_row_with_a_wrong_time_is_not_counted(postgres):
    target = TableTarget(postgres, is_keyed=False)
    target.create("bench-times")
    insert(postgres.url, "bench_times", "a")
    with psycopg.connect(postgres.url) as connection:
        connection.execute("UPDATE bench_times SET event_time = event_time + interval '2 hours'")
    with pytest.raises(OutputWrongError, match="1 events gave 0 rows with 1 event ids"):
        check(target, "bench-times", 1)
    target.remove("bench-times")


def test_the_database_has_the_process_that_starts_the_others(postgres):
    with psycopg.connect(postgres.url) as connection:
        assert connection.info.backend_pid != TableTarget(postgres, True).database_pid
        assert postgres.pid == TableTarget(postgres, True).database_pid


def test_records_of_a_topic_are_counted(broker, topic):
    target, name = TopicTarget(Broker(broker.bootstrap_servers, 0), partitions=2), topic("sinks")
    target.create(name)
    sender = connected_producer(client_config(KafkaSettings(), broker.bootstrap_servers))
    for partition, event_id in ((0, "a"), (1, "b"), (1, "b")):
        sender.produce(name, b'{"event_id":"%s"}' % event_id.encode(), partition=partition)
    sender.flush()
    assert target.event_ids(name) == (3, 2)
    target.remove(name)


@pytest.fixture
def index(opensearch):
    return IndexTarget(SimpleNamespace(client=lambda: Client(opensearch.port)))


def test_documents_of_an_index_are_counted_by_the_ids_of_their_events(
    opensearch, index, monkeypatch
):
    monkeypatch.setattr(opensearch_target, "IDS_A_REQUEST", 2)
    index.create("bench-round-1")
    for number, event_id in enumerate("abcc"):
        event = EVENT | {"event_id": event_id}
        opensearch.call("PUT", f"bench-round-1/_create/{number}", event)
    assert index.event_ids("bench-round-1") == (4, 3)
    index.remove("bench-round-1")
    index.create("bench-round-1")
    check(index, "bench-round-1", 0)
    index.remove("bench-round-1")


def test_a_document_with_a_wrong_time_is_not_counted(opensearch, index):
    index.create("bench-times")
    late = EVENT | {"event_time": "2019-11-24T12:00:00Z"}
    opensearch.call("PUT", "bench-times/_create/a", late)
    assert index.event_ids("bench-times") == (0, 1)
    index.remove("bench-times")


def test_rows_of_bigquery_are_counted(bigquery):
    target = BigQueryTarget(bigquery)
    bigquery.query("CREATE TABLE bench_round_1 (event_id STRING, event_time TIMESTAMP)")
    rows = "('a', '2019-11-24T10:00:00Z'), ('a', '2019-11-24T10:00:00Z')"
    bigquery.query(f"INSERT INTO bench_round_1 VALUES {rows}, ('b', '2019-11-24T12:00:00Z')")
    assert target.event_ids("bench-round-1") == (2, 2)
    target.remove("bench-round-1")
    assert target.database_pid


def test_rows_of_an_iceberg_table_are_those_of_its_newest_snapshot(tmp_path):
    time = pa.scalar(1_574_589_600_000_000, pa.timestamp("us", "UTC"))
    columns = {"event_id": ["a", "b", "b"], "event_time": [time] * 3, "category": ["c"] * 3}
    rows = pa.table(columns)
    sink = headrace_sinks.iceberg_sink(None, tmp_path)
    driver = sink.open(
        SinkContext("p", str(tmp_path), {}, {}, event_time="event_time"), rows.schema
    )
    writer = driver.writers("task")
    assert list(writer.write(rows)) == []
    driver.commit(list(writer.close()), batch(0), 0)
    uncommitted = driver.writers("other")
    uncommitted.write(rows)
    uncommitted.close()
    driver.close(0)
    assert event_ids(lake_target.files_of(tmp_path)) == (3, 2)
