"""Measuring on a real broker: bounded, cleaned up whatever happens; and where a key belongs."""

from __future__ import annotations

import json

import confluent_kafka
import pytest
from click.testing import CliRunner
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS

from headrace.cli import main
from headrace.errors import SampleError, TopicMissingError
from headrace.kafka.admin.measuring import TEMPORARY_PREFIX, Bounds, newest_values
from headrace.kafka.admin.topics import apply_changes, plan_topics
from headrace.kafka.client.admin_requests import admin
from headrace.kafka.client.clients import client_config, producer
from headrace.model import Topic
from headrace.model.partitioning import murmur2
from headrace.operations.sizing.measuring import (
    CONSUMED_BATCHES,
    SENDINGS,
    Sending,
    measure,
    sample_of_file,
    sample_of_topic,
)
from headrace.settings import KafkaSettings

TINY = Bounds(seconds=0.2, most_bytes=200_000)
FEW = (SENDINGS[0], Sending("1", 0, 16_384, "none"))


@pytest.fixture
def config(broker) -> dict[str, str]:
    return client_config(KafkaSettings(), broker.bootstrap_servers)


@pytest.fixture
def filled(config, topic) -> Topic:
    declared = Topic(topic(), partitions=3)
    apply_changes(config, plan_topics([declared], {}))
    sender = producer(config)
    for number in range(100):
        sender.produce(declared.name, json.dumps({"number": number}), str(number))
    assert sender.flush(FLUSH_SECONDS) == 0
    return declared


def test_markers_of_transactions_are_no_records_of_a_sample(config, topic):
    """The newest records are read on to, behind markers and where one partition has few."""
    declared = Topic(topic(), partitions=3)
    apply_changes(config, plan_topics([declared], {}))
    sender = confluent_kafka.Producer(dict(config) | {"transactional.id": declared.name})
    sender.init_transactions()
    for number in range(60):
        sender.begin_transaction()
        sender.produce(declared.name, str(number), partition=number % 10 == 0)
        sender.produce(declared.name, None, "deleted", partition=0)
        sender.commit_transaction()
    values = [int(value) for value in newest_values(config, declared.name, 24)]
    assert sorted(values[:6]) == [0, 10, 20, 30, 40, 50]
    assert values[6:] == [number for number in range(38, 60) if number % 10][-18:]
    assert sorted(map(int, newest_values(config, declared.name, 1_000))) == list(range(60))
    assert len(newest_values(config, declared.name, 7)) == 7


def left_behind(config) -> list[str]:
    topics = admin(config).list_topics(timeout=LIMIT_SECONDS).topics
    return [name for name in topics if name.startswith(TEMPORARY_PREFIX)]


def test_every_way_of_sending_and_every_batch_is_measured_and_nothing_stays(config, filled):
    sample = sample_of_topic(config, filled.name)
    assert len(sample.values) == 100
    told = []
    found = measure(config, sample, TINY, lambda *run: told.append(run), FEW)
    assert [one.sending for one in found.produced] == list(FEW)
    assert [one.batch for one in found.consumed] == list(CONSUMED_BATCHES)
    assert all(one.events_per_second > 0 for one in (*found.produced, *found.consumed))
    assert found.consumer_rate == max(one.events_per_second for one in found.consumed)
    assert [(done, runs) for done, runs, _ in told] == [(number, 5) for number in range(5)]
    assert left_behind(config) == []


def test_an_interrupted_measurement_leaves_no_topic(config, tmp_path):
    path = tmp_path / "sample.ndjson"
    path.write_text('{"a": 1}\n\n{"a": 2}\n')

    def interrupt(done, runs, name):
        assert left_behind(config)
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(config, sample_of_file(path), TINY, interrupt, FEW)
    assert left_behind(config) == []


def test_a_topic_without_events_is_no_sample(config, topic):
    name = topic()
    with pytest.raises(TopicMissingError):
        sample_of_topic(config, name)
    apply_changes(config, plan_topics([Topic(name)], {}))
    with pytest.raises(SampleError, match=r"it is empty.*--sample"):
        sample_of_topic(config, name)


def test_our_murmur2_places_keys_where_librdkafka_does(config, topic):
    name, partitions = topic(), 7
    apply_changes(config, plan_topics([Topic(name, partitions=partitions)], {}))
    keys = [
        ("k" * (number % 9) + str(number) + "ü" * (number % 3)).encode() for number in range(200)
    ]
    placed: dict[bytes, int] = {}
    sender = producer(config)
    for key in keys:
        sender.produce(
            name,
            b"",
            key,
            on_delivery=lambda _, message: placed.__setitem__(message.key(), message.partition()),
        )
    assert sender.flush(FLUSH_SECONDS) == 0
    assert placed == {key: (murmur2(key) & 0x7FFFFFFF) % partitions for key in keys}


def test_the_command_takes_size_and_rate_from_what_it_measured(broker, filled, tmp_path):
    (tmp_path / "headrace.toml").write_text(
        '[project]\nname = "measured"\nmodules = ["flow"]\nlake = ".headrace/lake"\n'
        f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
    )
    (tmp_path / "flow.py").write_text(
        "from headrace import Topic\n\nclass Event:\n    number: int\n\n"
        f'events = Topic("{filled.name}", event=Event, partitions=3)\n'
    )
    arguments = ["size", "--rate", "1M", "--measure", "--seconds", "0.1", "--json"]
    answer = CliRunner().invoke(main, [*arguments, "--project", str(tmp_path)])
    assert answer.exit_code == 0, answer.output
    document = json.loads(answer.stdout)
    measured = document["measured"]
    assert measured["sample_events"] == 100
    assert len(measured["produced"]) == len(SENDINGS)
    assert document["event_bytes"] == measured["event_bytes"]
    best = max(one["events_per_second"] for one in measured["consumed"])
    assert document["consumed_per_second"] == best
