"""The spool and the way to Kafka: rejections, a frozen broker, producers that end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as Assignment
from tests.integration.librdkafka import handle, library
from tests.waiting import FLUSH_SECONDS, until

from headrace.ingest.events.delivery import Delivery, UnknownOutcomeError, _Outstanding
from headrace.ingest.events.event_store import EventStore
from headrace.ingest.events.spool_sender import SpoolSender
from headrace.ingest.events.topic_watch import TopicPresence
from headrace.ingest.events.validation import Accepted
from headrace.ingest.spool.loader import Loader, NotSentError
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.spool import Spool, SpoolLimits, SpoolStats
from headrace.kafka.admin.topics import apply_changes, delete_topic, plan_topics, topic_states
from headrace.kafka.client import admin_requests, clients
from headrace.model import Topic
from headrace.settings import KafkaSettings


@pytest.fixture
def config(broker) -> dict[str, str]:
    return clients.client_config(KafkaSettings(), broker.bootstrap_servers)


@pytest.fixture
def create(config, topic) -> Callable[..., Topic]:
    """A topic of one's own, which is there."""

    def creating(**declared) -> Topic:
        made = Topic(topic(), **declared)
        apply_changes(config, plan_topics([made], topic_states(config, [made.name])))
        return made

    return creating


@pytest.fixture
def spool(tmp_path) -> Iterator[Spool]:
    made = Spool(tmp_path / "spool", SpoolLimits())
    yield made
    made.close()


def record(topic: str, value: bytes | str, key: bytes | None = b"k", partition: int | None = None):
    text = value.encode() if isinstance(value, str) else value
    return SpoolRecord(topic, key, text, (("h", b"v"),), 1_700_000_000_000, partition)


def values(config, topic: str) -> list[str]:
    """Of every record, in the order of each partition."""
    partitions = admin_requests.describe(config, [topic])[topic].all_partitions
    reader = clients.consumer(config)
    reader.assign([Assignment(one.topic, one.partition, 0) for one in partitions])
    found, ends = [], 0
    while ends < len(partitions):
        for message in reader.consume(10_000, timeout=1):
            if message.error() is None:
                found.append(message.value().decode())
            else:
                ends += message.error().code() == KafkaError._PARTITION_EOF
    reader.close()
    return found


def quarantined(spool: Spool) -> list[dict]:
    files = sorted((spool.store.folder / "quarantine").glob("*.rejected"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_what_kafka_rejects_is_quarantined_and_the_rest_arrives_once_in_order(
    config, create, spool
):
    """A compacted topic takes no record without a key, and rejects the batch that holds it."""
    compacted, plain = create(compaction=True), create()
    spool.append(
        [
            record(topic.name, f"{number}", None if rejected and topic is compacted else b"k")
            for number in range(300)
            for rejected in (number in {0, 1, 77, 299},)
            for topic in (compacted, plain)
        ]
    )
    sender = SpoolSender(config, [compacted, plain])
    report = Loader(spool, sender.send).run_once()
    assert (report.records, report.rejected, report.missing) == (596, 4, 0)
    assert values(config, plain.name) == [str(number) for number in range(300)]
    taken = [str(number) for number in range(300) if number not in {0, 1, 77, 299}]
    assert values(config, compacted.name) == taken
    assert spool.stats().rejected == 4
    assert not spool.pending
    assert {one["topic"] for one in quarantined(spool)} == {compacted.name}
    assert all("failed to validate record" in one["reason"] for one in quarantined(spool))


def test_nothing_overtakes_what_waits_behind_a_rejected_record(config, create, spool):
    """Many small batches of one key, the first of which is rejected for one of its records."""
    topic = create(compaction=True)
    topic = Topic(topic.name, compaction=True, config={"max.message.bytes": "1500"})
    spool.append(
        [record(topic.name, f"{n} {'x' * 300}", None if n == 2 else b"k") for n in range(200)]
    )
    Loader(spool, SpoolSender(config, [topic]).send).run_once()
    arrived = [int(value.split()[0]) for value in values(config, topic.name)]
    assert arrived == [number for number in range(200) if number != 2]


def test_a_record_too_large_for_its_topic_is_quarantined_alone(config, create, spool):
    """The topic takes less than what is declared here: batches are rejected too, and come again."""
    live = create(config={"max.message.bytes": "3000"})
    for number in range(80):
        text = secrets.token_hex(2500 if number == 40 else 200)
        spool.append([record(live.name, f"{number} {text}")])
    report = Loader(spool, SpoolSender(config, [Topic(live.name)]).send).run_once()
    assert (report.records, report.rejected) == (79, 1)
    arrived = [int(value.split()[0]) for value in values(config, live.name)]
    assert arrived == [number for number in range(80) if number != 40]


def test_records_of_a_topic_or_partition_that_is_gone_wait_and_the_others_arrive(
    config, create, spool
):
    gone, there, undeclared = create(), create(), create()
    for number in range(3):
        spool.append([record(topic.name, f"{number}") for topic in (gone, there, undeclared)])
    spool.append([record(there.name, "of no partition", partition=7)])
    delete_topic(config, gone.name)
    loader = Loader(spool, SpoolSender(config, [gone, there]).send)
    with pytest.raises(NotSentError, match="does not exist"):
        loader.run_once()
    assert set(values(config, there.name)) == set("012")
    assert set(values(config, undeclared.name)) == set("012")
    assert spool.stats().rejected == 0
    apply_changes(config, plan_topics([gone], topic_states(config, [gone.name])))
    with pytest.raises(NotSentError, match="does not exist"):
        loader.run_once()
    assert set(values(config, gone.name)) == set("012")
    loader.close()


class OneSpool:
    """As the spools of a service with one topic that has one."""

    def __init__(self, spool: Spool, topic: Topic) -> None:
        self.open = {topic.name: spool} if topic.spool else {}

    def stats(self) -> dict[str, SpoolStats]:
        return {topic: spool.stats() for topic, spool in self.open.items()}


class AllThere:
    """A watch of topics that are there."""

    kafka_answers = True

    def state(self, _: str) -> TopicPresence:
        return TopicPresence.THERE


class Client:
    """Sends one batch after the other, each until it is accepted."""

    def __init__(self, acceptance: EventStore, topic: str, name: str) -> None:
        self._acceptance, self._topic, self._name = acceptance, topic, name
        self.accepted: list[str] = []
        self.spooled = False

    async def run(self, ended: asyncio.Event) -> None:
        for number in range(1_000_000):
            if ended.is_set():
                return
            batch = [f"{self._name} {number} {place}" for place in range(5)]
            events = [Accepted(one.encode(), self._name.encode(), "", -1) for one in batch]
            self.spooled = await self._acceptance.accept(self._topic, events, [], 1.0)
            self.accepted += batch
            await asyncio.sleep(0.005)


@pytest.fixture
def on_the_wire(monkeypatch) -> set[str]:
    """Fills with the values that were taken back from there."""
    found, reported = set(), _Outstanding.reported

    def noting(self, error, message) -> None:
        if error is not None and error.code() == KafkaError._PURGE_INFLIGHT:
            found.add(message.value().decode())
        reported(self, error, message)

    monkeypatch.setattr(_Outstanding, "reported", noting)
    return found


def test_a_frozen_broker_repeats_at_most_what_was_on_the_wire(
    broker, config, create, spool, on_the_wire
):
    topic = create(partitions=4, spool=True)
    delivery, sender = Delivery(config, [topic]), SpoolSender(config, [topic])
    loader, stop = Loader(spool, sender.send), threading.Event()
    acceptance = EventStore(delivery, OneSpool(spool, topic), AllThere())
    clients = [Client(acceptance, topic.name, f"c{number}") for number in range(8)]

    async def drill() -> None:
        ended = asyncio.Event()
        running = [asyncio.create_task(one.run(ended)) for one in clients]
        await until(lambda: all(len(one.accepted) > 50 for one in clients))
        broker.cluster.pause(1)
        try:
            await until(lambda: all(one.spooled for one in clients))
            behind = [len(one.accepted) for one in clients]
            await until(lambda: all(len(one.accepted) > 50 + behind[0] for one in clients))
        finally:
            broker.cluster.resume(1)
        await until(lambda: not any(one.spooled for one in clients))
        after = max(len(one.accepted) for one in clients)
        await until(lambda: all(len(one.accepted) > after + 50 for one in clients))
        ended.set()
        await asyncio.gather(*running)

    thread = threading.Thread(target=loader.run, args=(stop,))
    thread.start()
    asyncio.run(drill())
    stop.set()
    thread.join()
    assert loader.run_once().missing == 0
    loader.close()
    assert asyncio.run(delivery.close(10)) == 0
    there = values(config, topic.name)
    for one in clients:
        arrived = [value for value in there if value.split()[0] == one.accepted[0].split()[0]]
        assert list(dict.fromkeys(arrived)) == one.accepted
    assert {value for value, count in Counter(there).items() if count > 1} <= on_the_wire
    assert spool.stats().quarantined == 0


def _end(producer: confluent_kafka.Producer) -> None:
    """A fatal error in librdkafka itself, by the function that it has for tests."""
    out_of_order = 45
    library().rd_kafka_test_fatal_error(handle(producer), out_of_order, b"a test")


@pytest.mark.parametrize("spooled", [False, True])
def test_a_producer_that_ended_is_replaced_and_each_request_is_answered(
    config, create, spool, spooled
):
    topic = create(spool=spooled)
    # So long that events still wait in the producer when it ends, unless it is flushed.
    delivery = Delivery(config, [topic], linger_seconds=20.0)
    acceptance = EventStore(delivery, OneSpool(spool, topic), AllThere())
    topic_producer = delivery._producers[topic.name]
    first = topic_producer.current

    async def send(number: int) -> bool | str:
        events = [Accepted(f"{number} {place}".encode(), b"k", "", -1) for place in range(20)]
        try:
            return await acceptance.accept(topic.name, events, [], 30)
        except UnknownOutcomeError:
            return "unknown"

    async def send_at_once(number: int) -> bool | str:
        sending = asyncio.create_task(send(number))
        await asyncio.sleep(0)
        assert topic_producer.current.flush(FLUSH_SECONDS) == 0
        return await sending

    async def drill() -> list[bool | str]:
        answers = [await send_at_once(0)]
        requests = [asyncio.create_task(send(number)) for number in range(1, 20)]
        await asyncio.sleep(0)
        _end(first)
        answers += await asyncio.gather(*requests)
        await until(lambda: topic_producer.current is not first)
        return [*answers, await send_at_once(20)]

    answers = asyncio.run(drill())
    loader = Loader(spool, SpoolSender(config, [topic]).send)
    loader.run_once()
    loader.close()
    assert asyncio.run(delivery.close(10)) == 0
    there = values(config, topic.name)
    assert answers[0] is False
    assert True in answers if spooled else "unknown" in answers
    for number, answer in enumerate(answers):
        if answer != "unknown":
            assert [value for value in there if value.split()[0] == str(number)] == [
                f"{number} {place}" for place in range(20)
            ]


def test_the_spool_goes_on_with_another_producer_when_its_own_ended(config, create, spool):
    topic = create(spool=True)
    sender = SpoolSender(config, [topic])
    loader = Loader(spool, sender.send)
    for number in range(3):
        spool.append([record(topic.name, f"{number}")])
        while spool.pending:
            with contextlib.suppress(NotSentError):
                loader.run_once()
        _end(sender._wire._producer)
    assert values(config, topic.name) == ["0", "1", "2"]
