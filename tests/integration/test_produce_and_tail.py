"""produce, tail and Project on a real broker: nothing lost, nothing left behind."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.avro_files import container
from tests.integration.dead_letters import write_dead_letters
from tests.waiting import wait_for

import headrace
from headrace.cli import main
from headrace.kafka.admin.topics import ensure_dead_letters
from headrace.kafka.client.admin_requests import admin, describe
from headrace.kafka.client.clients import client_config
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import (
    ByField,
    DeadLetter,
    OffsetRange,
    RecordMetadata,
    Topic,
    TopicPartition,
    partition_of,
)
from headrace.settings import KafkaSettings

HEADRACE = Path(sys.executable).with_name("headrace")
FLOW = """
from headrace import ByField, Topic

class Order:
    order_id: str
    country: str

orders = Topic(
    "{orders}", event=Order, key="order_id", partitions=3, partitioning=ByField("country")
)
raw = Topic("{raw}")
"""


@pytest.fixture
def config(broker) -> dict[str, str]:
    return client_config(KafkaSettings(), broker.bootstrap_servers)


@pytest.fixture
def names(topic) -> dict[str, str]:
    return {"orders": topic("orders"), "raw": topic("raw")}


@pytest.fixture
def folder(broker, names, tmp_path, monkeypatch) -> Path:
    """A project on the shared broker, whose topics are there."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = f"flow_{names['raw'].replace('-', '_')}"
    (tmp_path / "headrace.toml").write_text(
        f'[project]\nname = "shop"\nmodules = ["{module}"]\n'
        f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
    )
    (tmp_path / f"{module}.py").write_text(FLOW.format_map(names))
    assert CliRunner().invoke(main, ["apply", "--project", str(tmp_path)]).exit_code == 0
    return tmp_path


@pytest.fixture
def answer(folder) -> Callable[..., list[dict]]:
    """``answer("tail", topic)``: the documents that a command prints."""

    def run(*arguments: str, code: int = 0) -> list[dict]:
        result = CliRunner().invoke(main, [*arguments, "--json", "--project", str(folder)])
        assert result.exit_code == code, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    return run


def order(number: int, country: str = "PL") -> dict[str, str]:
    return {"order_id": f"a-{number}", "country": country}


def lines(count: int) -> str:
    return "".join(json.dumps(order(number)) + "\n" for number in range(count))


def held(config, topic: str) -> int:
    """Records in a topic."""
    partitions = describe(config, [topic])[topic].all_partitions
    return sum(end for _, end in watermarks(config, partitions).values())


def test_lines_are_keyed_placed_and_counted_and_the_invalid_named(
    folder, answer, names, config, tmp_path
):
    file = tmp_path / "orders.ndjson"
    file.write_text(lines(500) + '{"order_id": 7}\n' + json.dumps(order(501, "DE")) + "\n")
    rejected, ended = answer("produce", names["orders"], str(file), code=2)
    assert (rejected["line"], rejected["reason"]) == (501, "wrong-type")
    assert (ended["state"], ended["sent"]) == ("rejected", 500)
    assert held(config, names["orders"]) == 500
    _, ended = answer("produce", names["orders"], str(file), "--on-invalid", "skip")
    assert (ended["state"], ended["lines"], ended["sent"], ended["rejected"]) == (
        "finished", 502, 501, 1,
    )  # fmt: skip
    records = answer("tail", names["orders"], "--from", "earliest", "--once")
    assert len(records) == 1001
    for record in records:
        event = json.loads(record["value"])
        assert record["key"] == event["order_id"]
        place = partition_of(ByField("country"), 3)(event, "", datetime.now(UTC))
        assert record["partition"] == place
    polish = [record["key"] for record in records if '"PL"' in record["value"]]
    assert polish == [f"a-{number}" for number in range(500)] * 2


def test_a_stream_is_sent_as_it_comes_and_ctrl_c_loses_nothing(folder, names, config):
    command = [HEADRACE, "produce", names["orders"], "--json"]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdin.write(lines(100) + "{")
        process.stdin.flush()
        wait_for(lambda: held(config, names["orders"]) >= 100 or process.poll() is not None)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        stopping, ended = map(json.loads, process.stdout.read().splitlines())
        assert process.wait() == 130
    assert stopping == {"event": "stopping"}
    assert (ended["state"], ended["lines"], ended["sent"]) == ("interrupted", 100, 100)


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": name, "type": "string"} for name in ("order_id", "country", "other")],
}


def test_an_avro_file_is_sent_as_the_events_of_its_records(answer, names, tmp_path):
    file = tmp_path / "orders.avro"
    records = [order(number) | {"other": "x"} for number in range(10)]
    file.write_bytes(container(ORDER, records[:5], records[5:], codec="snappy"))
    [ended] = answer("produce", names["orders"], str(file))
    assert (ended["state"], ended["lines"], ended["sent"]) == ("finished", 10, 10)
    sent = answer("tail", names["orders"], "--from", "earliest", "--once")
    assert [json.loads(record["value"]) for record in sent] == [order(n) for n in range(10)]
    # Of a raw topic nothing says what its records would be.
    result = CliRunner().invoke(
        main, ["produce", names["raw"], str(file), "--project", str(tmp_path)]
    )
    assert (result.exit_code, "needs a topic with an event class" in result.stderr) == (2, True)


def test_a_raw_topic_takes_any_line(answer, names, tmp_path):
    file = tmp_path / "lines"
    file.write_bytes(b"\xff\x00\n\nplain\r\n")
    [ended] = answer("produce", names["raw"], str(file), "--header", "trace=7")
    assert (ended["sent"], ended["lines"]) == (2, 3)
    first, second = answer("tail", names["raw"], "--from", "earliest", "--limit", "2")
    assert (first["value_base64"], second["value"]) == ("/wA=", "plain\r")
    assert first["headers"] == [{"name": "trace", "value": "7"}]


def test_dead_letters_are_shown_and_a_time_is_a_place(answer, names, config):
    origin = Topic(names["raw"])
    ensure_dead_letters(config, [origin])
    letter = DeadLetter(TopicPartition(origin.name, 0), 0, "bad", "it is bad", b"k", b"{")
    write_dead_letters(config, [letter], "p", "1")
    [record] = answer("tail", origin.dead_letters, "--from", "earliest", "--limit", "1")
    assert record["value"] == "{"
    assert {"name": "headrace-reason", "value": "bad"} in record["headers"]
    before, after = (datetime.now(UTC) + timedelta(hours=hours) for hours in (-1, 1))
    shown = answer("tail", origin.dead_letters, "--from", before.isoformat(), "--once")
    assert shown == [record]
    assert answer("tail", origin.dead_letters, "--from", after.isoformat(), "--once") == []


def test_a_look_follows_the_topic_and_leaves_no_group_behind(folder, names, config):
    command = [HEADRACE, "tail", names["orders"], "--json", "--from", "earliest"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        with headrace.Project.open(folder).producer() as producer:
            producer.send(names["orders"], order(1))
        assert json.loads(process.stdout.readline())["key"] == "a-1"
        with headrace.Project.open(folder).producer() as producer:
            producer.send(names["orders"], order(2))
        assert json.loads(process.stdout.readline())["key"] == "a-2"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    groups = admin(config).list_consumer_groups().result().valid
    assert "headrace.reader" not in {group.group_id for group in groups}


def test_events_are_where_a_partitioner_put_them_and_where_their_places_say(folder, names, config):
    places = {}

    def by_number(key, partitions):
        return int(key.removeprefix(b"a-")) % partitions

    project = headrace.Project.open(folder)
    with project.producer(partitioner=by_number) as producer:
        for number in range(300):
            noted = functools.partial(places.__setitem__, f"a-{number}")
            producer.send(names["orders"], order(number), on_acknowledged=noted)
    partitions = describe(config, [names["orders"]])[names["orders"]].all_partitions
    ranges = [OffsetRange(partition, 0, 100) for partition in partitions]
    stored = {
        record.key().decode(): RecordMetadata(names["orders"], record.partition(), record.offset())
        for chunk in KafkaCluster(config).read(ranges)
        for record in chunk.records
    }
    assert stored == places
    assert places == {
        f"a-{number}": RecordMetadata(names["orders"], number % 3, number // 3)
        for number in range(300)
    }


def test_a_reader_that_has_seen_enough_ends_the_look(folder, names):
    with headrace.Project.open(folder).producer() as producer:
        for number in range(2000):
            producer.send(names["orders"], order(number))
    assert producer.acknowledged == {names["orders"]: 2000}
    reader, writer = os.pipe()
    command = [HEADRACE, "tail", names["orders"], "--json", "--from", "earliest"]
    with subprocess.Popen(command, cwd=folder, stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        assert os.read(reader, 10)
        os.close(reader)
        assert process.wait() == 0
        assert process.stderr.read() == b""
