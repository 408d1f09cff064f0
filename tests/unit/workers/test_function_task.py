"""Functions as tasks: what they are given by the names of their parameters."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from contextlib import asynccontextmanager
from functools import partial

import pytest
from pyspark import cloudpickle

from headrace.errors import RegistryUnreachableError
from headrace.events.avro.references import AvroSchemas
from headrace.kafka.admin.schema_registry import lookup_of
from headrace.model import Avro, JsonSchema, Protobuf, Topic
from headrace.settings import SchemaRegistrySettings, Secret
from headrace.testing import Outcome, WorkerBench
from headrace.workers import DeadLetters, KeyHash, References, Worker, WorkerRecord, worker
from headrace.workers.tasks.function_task import FunctionFactory, parameters_of
from headrace.workers.tasks.partitioner import OneToOne


@dataclasses.dataclass
class Order:
    customer: str
    price: int


@dataclasses.dataclass
class Refund:
    order: int


@dataclasses.dataclass
class Account:
    plan: str


ACCOUNTS = Topic("plans", event=Account, compaction=True)
ORDERS = Topic("orders", event=Order, key="customer")
REFUNDS = Topic("refunds", event=Refund)
RAW = Topic("raw")
COMPACTED = Topic("accounts", event=Order, key="customer", compaction=True)


@worker(topic=ORDERS, on_failure=DeadLetters())
async def charge(order: Order, record, send):
    send("receipts", f"{order.customer}: {order.price}".encode(), key=record.key)


AVRO = Topic("avro-orders", event=Order, format=Avro(), key="customer")


@worker(topic=AVRO, on_failure=DeadLetters())
async def charge_avro(order: Order, record, send):
    send("receipts", f"{order.customer}: {order.price}".encode(), key=record.key)


# -- what a function is given ---------------------------------------------------------------------


def test_a_function_is_given_the_event_the_record_and_send():
    with WorkerBench(charge) as bench:
        bench.feed({"customer": "ann", "price": 7})
    [sent] = bench.sent
    assert (sent.value, sent.key) == (b"ann: 7", b"ann")


def test_a_function_is_given_the_event_of_an_avro_record_and_bad_ones_meet_the_policy():
    with WorkerBench(charge_avro) as bench:
        bench.feed({"customer": "ann", "price": 7}, b"not Avro")
    [sent] = bench.sent
    [letter] = bench.dead_letters
    assert (sent.value, sent.key) == (b"ann: 7", b"ann")
    assert (letter.reason, letter.value) == ("no-schema-id", b"not Avro")


def test_a_function_is_given_the_events_of_a_json_schema_topic():
    topic = Topic("schema-orders", event=Order, format=JsonSchema(), key="customer")
    seen = []

    @worker(topic=topic, on_failure=DeadLetters())
    async def take(order: Order):
        seen.append(order)

    guid = ("__value_schema_id", b"\x01" + bytes(16))
    with WorkerBench(take) as bench:
        bench.feed({"customer": "ann", "price": 7})
        bench.feed(b'{"customer": "bob", "price": 8}', headers=[guid])
        bench.feed(b"\0\0\0\0\x01[]")
    assert seen == [Order("ann", 7), Order("bob", 8)]
    assert [letter.reason for letter in bench.dead_letters] == ["not-an-object"]


def test_a_function_is_given_the_events_of_a_protobuf_topic():
    topic = Topic("pb-orders", event=Order, format=Protobuf(), key="customer")
    seen = []

    @worker(topic=topic, on_failure=DeadLetters())
    async def take(order: Order):
        seen.append(order)

    with WorkerBench(take) as bench:
        bench.feed({"customer": "ann", "price": 7}, b"\0\0\0\0\x00\0\x08")
    assert seen == [Order("ann", 7)]
    assert [letter.reason for letter in bench.dead_letters] == ["not-protobuf"]


def test_tombstones_of_a_compacted_topic_are_left_out_of_its_events_and_counted():
    seen = []

    @worker(topic=[COMPACTED, RAW])
    def keep(value, record):
        seen.append(value)

    with WorkerBench(keep) as bench:
        [event, *tombstones] = bench.feed({"customer": "ann", "price": 7}, *[None] * 200, key="ann")
        [raw] = bench.feed(None, topic=RAW.name)
        bench.feed({"customer": "bob", "price": 8})
        assert bench.committable() == 202
    assert seen == [Order("ann", 7), None, Order("bob", 8)]
    assert (event.outcome, raw.outcome) == (Outcome.PROCESSED, Outcome.PROCESSED)
    assert {record.outcome for record in tombstones} == {Outcome.TOMBSTONE}
    assert (bench.counts["tombstones"], bench.counts["processed"]) == (200, 3)


def test_a_function_that_takes_no_event_is_given_tombstones():
    seen = []

    @worker(topic=COMPACTED)
    def keep(record):
        seen.append(record.key)

    with WorkerBench(keep) as bench:
        bench.feed(None, key="ann")
    assert seen == [b"ann"]
    assert "tombstones" not in bench.counts


def test_a_null_value_of_a_topic_that_is_not_compacted_meets_the_policy():
    with WorkerBench(charge) as bench:
        [fed] = bench.feed(None)
    [letter] = bench.dead_letters
    assert (fed.outcome, letter.reason) == (Outcome.DEAD_LETTER, "null-value")
    assert "compaction=True" in letter.detail


def test_a_registry_that_does_not_answer_ends_the_instance_and_makes_no_dead_letter():
    def away(schema_id):
        raise RegistryUnreachableError("http://registry", f"no answer for {schema_id}")

    factory = dataclasses.replace(charge_avro.task, schemas=away)
    # Not as a FunctionFactory: the bench would give that the schemas of its events.
    bench = WorkerBench(dataclasses.replace(charge_avro, task=factory.__call__))
    with pytest.raises(RegistryUnreachableError):
        bench.feed(b"\x00\x00\x00\x00\x07x")
    assert bench.dead_letters == []


def test_the_schemas_of_a_worker_travel_with_its_function():
    settings = SchemaRegistrySettings("http://registry", "ann", Secret("hunter2"))
    schemas = AvroSchemas(lookup_of(settings, "AVRO"))
    factory = dataclasses.replace(charge_avro.task, schemas=schemas)
    copy = cloudpickle.loads(cloudpickle.dumps(factory))
    assert copy.schemas.lookup.args[0].url == "http://registry"
    assert copy.needs_schemas
    assert not charge.task.needs_schemas


def test_a_record_that_is_no_event_meets_the_policy_as_an_invalid_one():
    with WorkerBench(charge) as bench:
        [fed] = bench.feed('{"customer": "ann"}')
    [letter] = bench.dead_letters
    assert fed.outcome is Outcome.DEAD_LETTER
    assert (letter.reason, letter.attempts) == ("missing-field", 1)
    assert letter.detail == "field 'price' is missing, expected an integer within 64 bits"


def test_events_of_several_topics_are_read_each_by_its_own_class():
    seen = []

    @worker(topic=[ORDERS, REFUNDS])
    def collect(event):
        seen.append(event)

    with WorkerBench(collect) as bench:
        bench.feed({"customer": "ann", "price": 7})
        bench.feed({"order": 1}, topic="refunds")
    assert seen == [Order("ann", 7), Refund(1)]


def test_without_an_event_class_the_first_parameter_is_the_value():
    seen = []

    @worker(topic=RAW)
    async def collect(value: bytes | None):
        seen.append(value)

    with WorkerBench(collect) as bench:
        bench.feed(b"\xff", None)
    assert seen == [b"\xff", None]


def test_an_observer_may_come_with_the_event():
    @worker(topic=ORDERS)
    async def coroutine(order, observer):
        observer.on_success()

    @worker(topic=ORDERS)
    def function(order, observer):
        observer.on_success()

    for observed in (coroutine, function):
        with WorkerBench(observed) as bench:
            [fed] = bench.feed({"customer": "ann", "price": 7})
        assert fed.outcome is Outcome.PROCESSED


def test_parameters_are_known_by_name_by_annotation_and_by_place():
    def by_annotation(job, _: WorkerRecord, *, verbose=False):
        """Its first parameter is bound below."""

    def everything(event, record, observer, send, shared):
        """All there is."""

    def strangers(event, producer, *, clock):
        """Nothing is known for two of them."""

    takes = parameters_of(partial(by_annotation, "job"))
    assert (takes.record, takes.event, takes.unknown) == ("_", "", ())
    takes = parameters_of(everything)
    assert (takes.event, takes.record) == ("event", "record")
    assert takes.others == {"observer", "send", "shared"}
    assert parameters_of(strangers).unknown == ("producer", "clock")


# -- a function that is decorated -----------------------------------------------------------------


def test_a_decorated_function_can_be_called_and_is_a_worker():
    calls = []

    def send(topic, value, *, key=None):
        calls.append((topic, value, key))

    record = WorkerRecord("orders", 0, 1, b"k", b"")
    asyncio.run(charge(Order("ann", 7), record, send))
    assert calls == [("receipts", b"ann: 7", b"k")]
    assert isinstance(charge, Worker)
    assert charge.name == "charge"


def test_the_decorator_has_the_defaults_of_a_worker():
    declared = {field.name: field for field in dataclasses.fields(Worker)}
    parameters = inspect.signature(worker).parameters
    others = {"task", "batch_records", "lookups", "spread_topics", "event_topics"}
    of_functions = {"subpartitions", "on_timer", "value_deserializer", "key_deserializer"}
    assert declared.keys() - others == parameters.keys() - of_functions
    made = worker(topic=RAW)(lambda record: None)
    plain = Worker(made.name, RAW, made.task)
    for name in declared:
        assert getattr(made, name) == getattr(plain, name), name


def test_subpartitions_are_short_for_a_partitioner_by_key():
    assert worker(topic=RAW, subpartitions=8)(print).partitioner == KeyHash(8)
    assert worker(topic=RAW)(print).partitioner == OneToOne()
    own = KeyHash(3)
    assert worker(topic=RAW, subpartitions=8, partitioner=own)(print).partitioner is own


def test_a_factory_is_pickled_without_what_it_made():
    factory = FunctionFactory(charge.task.function, (ORDERS,))
    factory()
    copy = cloudpickle.loads(cloudpickle.dumps(factory))
    assert copy.topics == (ORDERS,)
    assert copy.__dict__.keys() == {
        "function",
        "has_state",
        "on_timer",
        "topics",
        "schemas",
        "protobuf",
        "references",
        "value_deserializer",
        "key_deserializer",
    }


# -- what tasks share -----------------------------------------------------------------------------


def test_what_the_lifespan_gives_is_shared_by_all_tasks_until_they_are_closed():
    steps = []

    @asynccontextmanager
    async def lifespan(config):
        steps.append("entered")
        async with asyncio.timeout(3600):  # has to be left in the task that entered it
            yield [config["url"]]
        steps.append("left")

    @worker(topic=RAW, subpartitions=4, lifespan=lifespan, config={"url": "http://here"})
    async def ask(value: bytes, shared):
        shared.append(value)
        steps.append(shared[0])

    with WorkerBench(ask) as bench:
        bench.feed(b"1", b"2")
        assert [task.shared for task in bench.tasks] == [["http://here", b"1", b"2"]] * 4
    assert steps == ["entered", "http://here", "http://here", "left"]


@pytest.mark.parametrize("moment", ["enter", "leave"])
def test_a_lifespan_that_raises_ends_the_instance(moment):
    @asynccontextmanager
    async def lifespan(config):
        if moment == "enter":
            raise OSError("no server")
        yield
        raise OSError("no server")

    @worker(topic=RAW, lifespan=lifespan)
    async def ask(record):
        """Nothing comes."""

    with pytest.raises(OSError, match="no server"), WorkerBench(ask):
        pass


# -- references -----------------------------------------------------------------------------------


@worker(topic=ORDERS, references={"accounts": ACCOUNTS}, on_failure=DeadLetters())
async def look_up(order: Order, accounts: References[Account], send):
    send("plans", accounts[order.customer].plan.encode())


def test_a_function_takes_references_by_their_names_whatever_the_order():
    @worker(topic=RAW, references={"accounts": ACCOUNTS})
    def first(accounts, record, more=3):
        seen.append((accounts, more))

    seen = []
    with WorkerBench(first, references={"accounts": {"ann": {"plan": "gold"}}}) as bench:
        bench.feed(b"1")
    assert seen == [({b"ann": Account("gold")}, 3)]
    takes = parameters_of(look_up.task.function, look_up.task.references)
    assert (takes.event, [*takes.references], takes.unknown) == ("order", ["accounts"], ())


def test_a_decorated_function_is_called_with_references_of_a_dict():
    sent = []
    call = look_up(
        Order("ann", 7),
        accounts=References({"ann": Account("gold")}),
        send=lambda *record: sent.append(record),
    )
    asyncio.run(call)
    assert sent == [("plans", b"gold")]


def test_references_travel_with_a_worker():
    travelled = cloudpickle.loads(cloudpickle.dumps(look_up))
    assert [*travelled.references] == ["accounts"]
    with WorkerBench(travelled, references={"accounts": {"ann": {"plan": "gold"}}}) as bench:
        bench.feed({"customer": "ann", "price": 7})
    assert [record.value for record in bench.sent] == [b"gold"]
