"""Events of a program: checked, keyed and placed as ingest does it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest
from confluent_kafka import KafkaError
from tests.mock_brokers import PRODUCE, MockBrokers
from tests.mock_registry import MockRegistry

from headrace.errors import (
    AccountMissingError,
    EventRejectedError,
    EventsNotDeliveredError,
    NotDeclaredError,
    PartitionMissingError,
    RecordKeyMissingError,
    SpreadsUnknownError,
    TopicMissingError,
)
from headrace.events.avro.values import avro_schema
from headrace.events.parsing.event_json import event_text
from headrace.ingest.producing.event_producer import EventProducer, TopicCheck
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import (
    Avro,
    ByAccount,
    ByField,
    EpochMillis,
    Json,
    OffsetRange,
    Precision,
    RecordMetadata,
    Spread,
    Topic,
    TopicPartition,
    partition_of,
)
from headrace.pipelines.source.decode import decoder_for
from headrace.pipelines.source.decode.avro import AvroDecoder
from headrace.project.loaded import LoadedProject
from headrace.settings import Settings


@dataclass(frozen=True, slots=True)
class Order:
    order_id: str
    ordered_at: datetime
    changed_at: EpochMillis | None
    country: str


AT = datetime(2024, 11, 29, 8, tzinfo=UTC)
ORDER = {"order_id": "a-1", "ordered_at": AT, "changed_at": AT, "country": "PL"}
ORDERS = Topic("orders", event=Order, key="order_id", event_time="ordered_at", partitions=4)
BY_COUNTRY = Topic("by-country", event=Order, partitions=4, partitioning=ByField("country"))
BY_ACCOUNT = Topic(
    "by-account", event=Order, partitions=4, partitioning=ByAccount(timedelta(days=1))
)
SPREAD = ByAccount(timedelta(hours=1), lead=timedelta(days=2))
RAW = Topic("raw")
TEXT = (
    b'{"order_id":"a-1","ordered_at":"2024-11-29T08:00:00Z","changed_at":1732867200000,'
    b'"country":"PL"}'
)


@dataclass(frozen=True, slots=True)
class Line:
    sku: str
    price: Annotated[Decimal, Precision(8, scale=2)]
    picked_at: EpochMillis | None


@dataclass(frozen=True, slots=True)
class Basket:
    first: Line
    lines: list[Line]
    by_day: dict[str, Line]
    day: date
    note: bytes | None


BASKETS = Topic("baskets", event=Basket)


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(tmp_path, "shop", ("flow",), "lake")


@pytest.fixture
def brokers(monkeypatch) -> MockBrokers:
    """Brokers that have every declared topic."""
    made = MockBrokers()
    for topic in (ORDERS, BY_COUNTRY, BY_ACCOUNT, RAW):
        made.create(topic.name, topic.partitions)
    monkeypatch.setattr(
        "headrace.ingest.producing.event_producer.broker_config", lambda _: made.config
    )
    live = {
        topic.name: LiveTopic(topic.name, "id", topic.partitions, 1)
        for topic in (ORDERS, BY_COUNTRY, BY_ACCOUNT, RAW)
    }
    monkeypatch.setattr("headrace.ingest.producing.event_producer.describe", lambda *_: live)
    return made


@pytest.fixture
def project(settings) -> LoadedProject:
    return LoadedProject(settings, (ORDERS, BY_COUNTRY, BY_ACCOUNT, RAW))


@pytest.mark.parametrize(
    "event", [ORDER, Order(**ORDER), SimpleNamespace(**ORDER), TEXT, TEXT.decode()]
)
def test_an_event_is_a_mapping_an_object_or_its_text(event):
    assert event_text(ORDERS, event) == TEXT


@pytest.mark.parametrize(("topic", "event"), [(ORDERS, 7), (ORDERS, Order), (RAW, "text")])
def test_what_is_no_event_is_a_type_error(topic, event):
    with pytest.raises(TypeError):
        event_text(topic, event)


def test_a_record_has_the_key_and_the_place_that_its_topic_declares(settings):
    record = TopicCheck(ORDERS, settings)(TEXT)
    assert (record.value, record.key, record.partition) == (TEXT, b"a-1", -1)
    record = TopicCheck(BY_COUNTRY, settings, "acme")(TEXT)
    place = partition_of(BY_COUNTRY.partitioning, 4)({"country": "PL"}, "acme", AT)
    assert (record.key, record.partition) == (b"acme", place)
    assert TopicCheck(RAW, settings)(b"\xff").value == b"\xff"


def test_every_event_of_a_with_block_is_acknowledged_at_its_end(brokers, project):
    with EventProducer(project) as producer:
        for number in range(10):
            producer.send(ORDERS, ORDER | {"order_id": f"a-{number}"})
        producer.send("by-country", TEXT, headers=[("trace", b"t")])
        producer.send("raw", b"\xff", key=b"k")
    assert producer.acknowledged == {"orders": 10, "by-country": 1, "raw": 1}


def test_the_place_of_each_event_comes_back_where_it_is_asked_for(brokers, project):
    places = []
    with EventProducer(project) as producer:
        producer.send("by-country", TEXT, on_acknowledged=places.append)
        producer.send("raw", b"a", on_acknowledged=places.append)
        producer.send("raw", b"b")
        producer.send("raw", b"c", on_acknowledged=places.append)
        producer.flush()
        assert len(places) == 3
    country = partition_of(BY_COUNTRY.partitioning, 4)({"country": "PL"}, "", AT)
    assert sorted(places, key=lambda place: (place.topic, place.offset)) == [
        RecordMetadata("by-country", country, 0),
        RecordMetadata("raw", 0, 0),
        RecordMetadata("raw", 0, 2),
    ]


def test_an_event_that_is_not_delivered_has_no_place(brokers, project):
    brokers.answer(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    places, producer = [], EventProducer(project)
    producer.send("orders", ORDER, on_acknowledged=places.append)
    with pytest.raises(EventsNotDeliveredError):
        producer.flush()
    assert places == []


def test_what_the_function_for_a_place_raises_comes_out_and_all_events_are_sent(brokers, project):
    producer = EventProducer(project)
    producer.send("raw", b"a", on_acknowledged=lambda place: 1 / 0)
    producer.send("raw", b"b")
    with pytest.raises(ZeroDivisionError):
        producer.flush()
    assert producer.acknowledged == {"raw": 2}
    producer.flush()


def test_a_partitioner_of_the_program_is_asked_in_place_of_the_topics_own(brokers, project):
    asked, places = [], []

    def second(key, partitions):
        asked.append((key, partitions))
        return min(1, partitions - 1)

    with EventProducer(project, partitioner=second) as producer:
        producer.send("orders", ORDER, on_acknowledged=places.append)
        producer.send("by-country", ORDER, on_acknowledged=places.append)
        producer.send("raw", b"a", key=b"", on_acknowledged=places.append)
    assert asked == [(b"a-1", 4), (None, 4), (b"", 1)]
    assert {place.topic: place.partition for place in places} == {
        "orders": 1,
        "by-country": 1,
        "raw": 0,
    }


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_a_topic_does_not_have_is_refused_and_the_next_event_sent(
    brokers, project, partition
):
    chosen = iter([partition, 3])
    with EventProducer(project, partitioner=lambda *_: next(chosen)) as producer:
        with pytest.raises(PartitionMissingError, match="Its partitions are 0 to 3") as caught:
            producer.send("orders", ORDER)
        producer.send("orders", ORDER)
    assert (caught.value.topic, caught.value.partition) == ("orders", partition)
    assert producer.acknowledged == {"orders": 1}


@pytest.mark.parametrize("key", [None, b"", b"k"])
def test_a_raw_record_has_the_key_that_it_was_given(brokers, project, key):
    with EventProducer(project) as producer:
        producer.send("raw", b"\xff", key=key)
    [chunk] = KafkaCluster(brokers.config).read([OffsetRange(TopicPartition("raw", 0), 0, 1)])
    assert [record.key() for record in chunk.records] == [key]


def test_an_event_that_does_not_fit_is_rejected_and_the_next_one_is_sent(brokers, project):
    with EventProducer(project) as producer:
        with pytest.raises(EventRejectedError, match="field 'country' is an integer") as caught:
            producer.send("orders", ORDER | {"country": 7})
        producer.send("orders", ORDER)
    assert (caught.value.topic, caught.value.reason) == ("orders", "wrong-type")
    assert producer.acknowledged == {"orders": 1}


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (ORDER | {"changed_at": AT.replace(tzinfo=None)}, "wrong-type"),
        (ORDER | {"changed_at": AT.replace(microsecond=999)}, "wrong-value"),
        (ORDER | {"country": b"PL"}, "wrong-type"),
        (ORDER | {"country": "\ud800"}, "lone-surrogate"),
        (TEXT.decode().replace("PL", "\ud800"), "not-utf8"),
    ],
)
def test_an_event_that_json_does_not_hold_as_it_is_is_rejected(brokers, project, event, reason):
    with EventProducer(project) as producer, pytest.raises(EventRejectedError) as caught:
        producer.send("orders", event)
    assert (caught.value.topic, caught.value.reason) == ("orders", reason)
    assert producer.acknowledged == {}


def test_a_header_without_a_name_in_utf_8_is_rejected_before_the_client_library_sees_it(
    brokers, project
):
    with EventProducer(project) as producer:
        with pytest.raises(EventRejectedError, match="half of a surrogate") as caught:
            producer.send("orders", ORDER, headers=[("trace", b"t"), ("\udcff", b"")])
        producer.send("orders", ORDER, headers=[("trace", b"t")])
    assert caught.value.reason == "bad-header-name"
    assert producer.acknowledged == {"orders": 1}


def test_a_topic_that_places_by_account_needs_a_producer_with_one(brokers, project):
    with pytest.raises(AccountMissingError):
        EventProducer(project).send("by-account", ORDER)
    with EventProducer(project, "acme") as producer:
        producer.send("by-account", ORDER)
    assert producer.acknowledged == {"by-account": 1}


def test_an_event_whose_spreads_are_not_known_is_not_sent_and_others_are(
    brokers, settings, monkeypatch
):
    topic = replace(BY_ACCOUNT, event_time="ordered_at", partitioning=SPREAD)

    def applied(_config, declared):
        assert declared is topic

        def spreads(account, begin):
            if begin > AT:
                raise SpreadsUnknownError(topic.name, "it was not read")
            return (Spread(AT - timedelta(days=1), 4),) if account == "acme" else ()

        return spreads

    monkeypatch.setattr("headrace.topics.spreads.following.applied_spreads", applied)
    with EventProducer(LoadedProject(settings, (topic,)), "acme") as producer:
        for hours in range(-12, 1):
            producer.send(topic, ORDER | {"ordered_at": AT + timedelta(hours=hours)})
        with pytest.raises(SpreadsUnknownError, match="Events of earlier windows are"):
            producer.send(topic, ORDER | {"ordered_at": AT + timedelta(hours=1)})
    assert producer.acknowledged == {topic.name: 13}
    check = TopicCheck(topic, settings, "acme")
    times = [AT - timedelta(hours=hours) for hours in range(12)]
    texts = [event_text(topic, ORDER | {"ordered_at": time}) for time in times]
    assert len({check(text).partition for text in texts}) > 1


def test_events_that_hold_their_account_need_no_other(settings):
    topic = replace(
        BY_ACCOUNT,
        event_time="ordered_at",
        partitioning=ByAccount(timedelta(days=1), account="country"),
    )
    place = partition_of(topic.partitioning, topic.partitions)
    assert TopicCheck(topic, settings)(TEXT).partition == place({"country": "PL"}, "", AT)


def test_after_an_event_that_kafka_did_not_take_no_other_is_sent(brokers, project):
    producer = EventProducer(project)
    producer.send("orders", ORDER)
    producer.flush()
    brokers.answer(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    producer.send("orders", ORDER)
    with pytest.raises(EventsNotDeliveredError, match="allow WRITE on topic orders"):
        producer.flush()
    with pytest.raises(EventsNotDeliveredError):
        producer.send("orders", ORDER)
    assert producer.acknowledged == {"orders": 1}


def test_the_error_of_the_block_comes_before_that_of_the_delivery(brokers, project):
    brokers.answer(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    producer = EventProducer(project)
    producer.send("orders", ORDER)
    with pytest.raises(ZeroDivisionError), producer:
        raise ZeroDivisionError


def test_topics_that_are_not_declared_or_not_there_are_named(brokers, project, monkeypatch):
    producer = EventProducer(project)
    with pytest.raises(NotDeclaredError, match=r"'views'.*orders, by-country, by-account, raw"):
        producer.send("views", ORDER)
    with pytest.raises(ValueError, match="declares the key"):
        producer.send("orders", ORDER, key=b"k")
    monkeypatch.setattr("headrace.ingest.producing.event_producer.describe", lambda *_: {})
    with pytest.raises(TopicMissingError):
        producer.send("orders", ORDER)


def test_nested_events_are_written_as_their_topic_reads_them(settings):
    line = Line("a", Decimal("1.50"), AT)
    basket = Basket(line, [line, Line("b", Decimal(2), None)], {"x": line}, AT.date(), b"\x00")
    written = {"sku": "a", "price": "1.50", "picked_at": 1732867200000}
    text = event_text(BASKETS, basket)
    assert json.loads(text) == {
        "first": written,
        "lines": [written, {"sku": "b", "price": "2", "picked_at": None}],
        "by_day": {"x": written},
        "day": "2024-11-29",
        "note": "AA==",
    }
    assert TopicCheck(BASKETS, settings)(text).value == text
    (row,) = decoder_for(Json(), BASKETS.schema).decode([text]).rows.to_pylist()
    assert row["lines"][0] == {"sku": "a", "price": Decimal("1.50"), "picked_at": AT}


def test_a_nested_value_that_is_no_object_is_rejected_by_its_path(settings):
    text = event_text(BASKETS, {"first": "a", "lines": [], "by_day": {}, "day": AT.date()})
    assert TopicCheck(BASKETS, settings)(text).detail.startswith("field 'first' is a string")


def test_no_event_is_sent_without_the_key_that_its_topic_is_compacted_by(settings):
    topic = replace(BASKETS, key=None, compaction=True)
    with pytest.raises(RecordKeyMissingError, match=topic.name):
        TopicCheck(topic, settings)


def test_events_of_an_avro_topic_are_checked_as_json_and_sent_with_the_schema_of_their_class():
    topic = Topic("orders", event=Order, format=Avro(), key="order_id", event_time="ordered_at")
    with MockRegistry().running() as registry:
        settings = Settings(Path(), "shop", ("flow",), "lake", schema_registry=registry.settings)
        check = TopicCheck(topic, settings)
        record = check(event_text(topic, ORDER))
        again = check(event_text(topic, ORDER | {"order_id": "a-2"}))
        wrong = check(b'{"order_id": 7}')
    assert (record.key, again.key, wrong.code) == (b"a-1", b"a-2", "wrong-type")
    assert len(registry.requests) == 1
    (schema, _) = registry.schemas[0]
    assert json.loads(schema) == avro_schema(topic.schema)
    decoded = AvroDecoder(topic.schema, Schemas(json.loads(schema)).avro_schema).decode(
        [record.value]
    )
    assert decoded.rejected == {}
    as_json = decoder_for(Json(), topic.schema).decode([TEXT])
    assert decoded.rows.to_pylist() == as_json.rows.to_pylist()


@dataclass(frozen=True)
class Schemas:
    """A registry of one schema."""

    schema: object

    def avro_schema(self, _: int) -> object:
        return self.schema
