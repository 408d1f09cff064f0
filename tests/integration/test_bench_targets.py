"""What the benchmark of sinks counts, in a real topic and a real table."""

import psycopg
import pytest
from bench.cluster import Broker
from bench.driver import OutputWrongError
from bench.sink_targets import COLUMNS, TableTarget, TopicTarget, check

from headrace.kafka.client import client_config, connected_producer
from headrace.settings.model import KafkaSettings

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
