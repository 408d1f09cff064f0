"""Workers of Avro topics while the schema registry does not answer: only its own record waits."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.integration.instances import drill
from tests.mock_registry import MockRegistry
from tests.unit.workers.lanes import LaneBench
from tests.waiting import until

from headrace.events.avro.references import AvroSchemas
from headrace.events.avro.values import AvroWriter, avro_schema
from headrace.kafka.admin.schema_registry import lookup_of
from headrace.model import Avro, Topic, TopicPartition
from headrace.workers import WorkerRecord
from headrace.workers.tasks.function_task import FunctionFactory
from headrace.workers.tasks.record import ConsumedRecord


@dataclass
class Order:
    customer: str


@dataclass
class NewOrder:
    customer: str
    coupon: str | None


OLD, NEW = Topic("old", event=Order), Topic("new", event=NewOrder)
WRITTEN = Topic("t", event=Order, format=Avro())


def coroutine(seen):
    async def take(order: Order):
        seen.append(order.customer)

    return take


def ordinary(seen):
    return lambda order: seen.append(order.customer)


def observed(seen):
    async def take(order: Order, observer):
        seen.append(order.customer)
        observer.on_success()

    return take


@pytest.mark.parametrize("kind", [coroutine, ordinary, observed])
def test_a_record_whose_schema_is_not_known_keeps_no_other_lane_waiting(kind):
    seen = []

    async def process():
        with MockRegistry().running() as registry:
            lookup = lookup_of(registry.settings, Avro.registry_kind)
            schemas = AvroSchemas(lookup)
            bench = LaneBench(FunctionFactory(kind(seen), (WRITTEN,), schemas))
            bench.assign(1)
            known, unknown = (registry.add(avro_schema(topic.schema)) for topic in (OLD, NEW))
            ann, bob = (
                AvroWriter(OLD.schema, known)(b'{"customer": "%s"}' % name)
                for name in (b"ann", b"bob")
            )
            eve = AvroWriter(NEW.schema, unknown)(b'{"customer": "eve"}')
            put(bench, 1, 0, ann)
            await until(lambda: seen == ["ann"])
            registry.answers.clear()
            put(bench, 0, 0, eve)
            await until(lambda: len(registry.requests) == 2)
            put(bench, 1, 1, bob)
            await until(lambda: seen == ["ann", "bob"])
            bench.expire()  # it is the registry that takes long, not the record
            registry.answers.set()
            await until(lambda: seen == ["ann", "bob", "eve"])
            await until(lambda: bench.committable == 1)
            assert bench.failures.ended == []

    drill(process())


def put(bench, partition, offset, value):
    record = WorkerRecord("t", partition, offset, None, value)
    bench.assignments.put(ConsumedRecord(record, TopicPartition("t", partition), offset))
