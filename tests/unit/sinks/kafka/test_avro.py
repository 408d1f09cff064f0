"""Rows as records of an Avro topic: with the schema of its class, as every reader takes it."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Annotated

import confluent_kafka
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.mock_brokers import MockBrokers
from tests.mock_registry import MockRegistry
from tests.waiting import LIMIT_SECONDS

from headrace import Avro, EpochMillis, Kafka, Precision, Topic
from headrace.errors import RegistryUnreachableError, SchemaRejectedError, SinkError
from headrace.events.avro.references import AvroSchemas
from headrace.events.instances import event_reader
from headrace.kafka.admin.schema_registry import SchemaRegistry
from headrace.pipelines.source.record_columns import row_columns
from headrace.sinks.api import SinkContext

AT = datetime(2026, 11, 22, 12, 0, 0, 250_000, tzinfo=UTC)


class Item:
    sku: str
    price: Annotated[Decimal, Precision(12, scale=2)]


class Order:
    order_id: str
    at: datetime
    made: EpochMillis
    day: date
    paid: bool
    weight: float | None
    item: Item
    items: list[Item]
    labels: dict[str, int]
    content: bytes


ORDERS = Topic(
    "orders",
    event=Order,
    format=Avro(),
    key="item.sku",
    event_time="at",
    latest_ahead=timedelta.max,
)
ROW = {
    "order_id": "o1",
    "at": AT,
    "made": AT,
    "day": date(2026, 11, 22),
    "paid": True,
    "weight": None,
    "item": {"sku": "a", "price": Decimal("1.50")},
    "items": [{"sku": "b", "price": Decimal("0.10")}],
    "labels": [("x", 1)],
    "content": b"\x00\xff",
}
COLUMNS = row_columns(ORDERS.schema, ())


@pytest.fixture
def registry():
    with MockRegistry().running() as registry:
        yield registry


def context(registry, **client):
    return SinkContext("p", "", client, registry=registry)


def first_record(brokers, topic):
    reader = confluent_kafka.Consumer({**brokers.config, "group.id": "test"})
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    record = reader.poll(LIMIT_SECONDS)
    reader.close()
    return record


def test_readers_take_the_row_by_the_schema_that_the_start_registers(registry):
    brokers = MockBrokers()
    brokers.create("orders")
    driver = Kafka(ORDERS).open(context(registry.settings, **brokers.config), COLUMNS)
    assert registry.requests == ["POST /subjects/orders-value/versions?normalize=False"]
    writer = cloudpickle.loads(cloudpickle.dumps(driver.writers))("t")
    rows = pa.Table.from_pylist([ROW | {"paid": None}, ROW], COLUMNS)
    assert [(row.index, row.reason) for row in writer.write(rows)] == [(0, "wrong-type")]
    record = first_record(brokers, "orders")
    assert record.key() == b"a"
    schemas = AvroSchemas(partial(SchemaRegistry(registry.settings).schema, "AVRO"))
    order = event_reader(ORDERS, clock=AT.timestamp, schemas=schemas)(record.value())
    assert (order.at, order.made, order.day, order.paid) == (AT, AT, date(2026, 11, 22), True)
    assert (order.weight, order.labels, order.content) == (None, {"x": 1}, b"\x00\xff")
    assert (order.item.price, order.items[0].price) == (Decimal("1.50"), Decimal("0.10"))


@pytest.mark.parametrize(
    ("status", "error"), [(409, SchemaRejectedError), (503, RegistryUnreachableError)]
)
def test_nothing_starts_where_the_registry_does_not_take_the_schema(registry, status, error):
    registry.status = status
    with pytest.raises(error):
        Kafka(ORDERS).open(context(registry.settings), COLUMNS)


def test_nothing_starts_without_a_registry():
    with pytest.raises(SinkError, match="no schema registry"):
        Kafka(ORDERS).open(context(None), COLUMNS)


def test_the_extra_of_the_format_is_needed():
    assert Kafka(ORDERS).extra_for({}) == "avro"
    assert Kafka(Topic("orders", event=Order)).extra_for({}) == ""
