"""Deserializers of the user's own: what a function is given, and what follows what they raise."""

from __future__ import annotations

import threading
from datetime import timedelta
from uuid import UUID

import pytest
from pyspark import cloudpickle

from headrace.errors import InvalidRecordError
from headrace.model import Topic
from headrace.testing import WorkerBench
from headrace.workers import DeadLetters, References, Retry, worker
from headrace.workers.rules import worker_faults

READINGS = Topic("readings")
LOGGED = Topic("logged", compaction=True)
SENSOR = UUID(int=7)


class Row:
    name: str


ROWS = Topic("rows", event=Row, compaction=True)


def sensor(key: bytes) -> UUID:
    return UUID(bytes=key)


def declared(function, **options):
    return worker(topic=READINGS, **options)(function)


def messages(function, topic=READINGS, **options):
    return [fault.message for fault in worker_faults(worker(topic=topic, **options)(function))]


def test_a_function_is_given_what_the_deserializers_make_of_value_and_key():
    seen = []

    async def take(value, key, record):
        seen.append((value, key, record.value, record.key))

    bench = WorkerBench(declared(take, value_deserializer=float, key_deserializer=sensor))
    with bench:
        bench.feed(b"4.5", key=SENSOR.bytes)
    assert seen == [(4.5, SENSOR, b"4.5", SENSOR.bytes)]


def test_the_key_can_be_deserialized_of_events_and_by_itself():
    seen = []

    @worker(topic=ROWS, key_deserializer=bytes.decode)
    async def of_events(row: Row, key):
        seen.append((row.name, key))

    @worker(topic=READINGS, key_deserializer=bytes.decode)
    async def alone(key, record):
        seen.append((record.value, key))

    for declaration, value in ((of_events, {"name": "x"}), (alone, b"4")):
        with WorkerBench(declaration) as bench:
            bench.feed(value, key="k")
    assert seen == [("x", "k"), (b"4", "k")]


def test_a_first_parameter_key_is_the_value_where_no_deserializer_is_declared():
    seen = []

    async def take(key):
        seen.append(key)

    with WorkerBench(declared(take)) as bench:
        bench.feed(b"value", key=b"k")
    assert seen == [b"value"]


@pytest.mark.parametrize("topic", [READINGS, LOGGED])
def test_null_values_and_keys_are_none_without_a_call_and_empty_ones_are_deserialized(topic):
    seen = []

    @worker(topic=topic, value_deserializer=bytes.decode, key_deserializer=bytes.decode)
    async def take(value, key):
        seen.append((value, key))

    with WorkerBench(take) as bench:
        bench.feed(None, b"", key=b"")
        if not topic.is_compacted:
            bench.feed(b"v", key=None)
    assert seen[:2] == [(None, ""), ("", "")]
    assert seen[2:] == ([] if topic.is_compacted else [("v", None)])


def refuse(_):
    raise InvalidRecordError("not-ours", "of another program")


@pytest.mark.parametrize(
    ("deserializers", "reason"),
    [
        ({"value_deserializer": float}, "invalid-value"),
        ({"value_deserializer": refuse}, "not-ours"),
        ({"key_deserializer": sensor}, "invalid-key"),
        ({"key_deserializer": refuse}, "not-ours"),
    ],
)
def test_invalid_bytes_are_a_dead_letter_at_once_with_the_reason(deserializers, reason):
    async def take(value, record, key=None):
        raise AssertionError(value)

    async def take_key(value, key):
        raise AssertionError(value)

    function = take_key if "key_deserializer" in deserializers else take
    policy = Retry(attempts=3, first_delay=timedelta(hours=1), then=DeadLetters())
    with WorkerBench(declared(function, on_failure=policy, **deserializers)) as bench:
        bench.feed(b"no number", key=b"no uuid")
    [letter] = bench.dead_letters
    assert (letter.reason, letter.attempts) == (reason, 1)
    assert (letter.value, letter.key) == (b"no number", b"no uuid")


def test_any_other_error_is_a_failed_attempt_and_each_attempt_deserializes_again():
    calls, seen = [], []

    def unreachable_once(value):
        calls.append(value)
        if len(calls) == 1:
            raise OSError("no connection")
        return value.decode()

    async def take(value):
        seen.append(value)

    policy = Retry(attempts=2, first_delay=timedelta(milliseconds=1))
    with WorkerBench(
        declared(take, value_deserializer=unreachable_once, on_failure=policy)
    ) as bench:
        bench.feed(b"a")
    assert (calls, seen) == ([b"a", b"a"], ["a"])


@pytest.mark.parametrize("is_coroutine", [True, False])
def test_they_are_called_on_the_thread_of_the_function(is_coroutine):
    threads = []

    def note(read):
        threads.append(threading.get_ident())
        return read

    async def on_loop(value, key):
        note(value)

    def on_thread(value, key):
        note(value)

    function = on_loop if is_coroutine else on_thread
    with WorkerBench(declared(function, value_deserializer=note, key_deserializer=note)) as bench:
        bench.feed(b"a", key=b"k")
    assert len(threads) == 3
    assert len(set(threads)) == 1


class NotingKeys:
    """Puts all records into one subpartition."""

    def __init__(self):
        self.keys = []

    def subpartition(self, record):
        self.keys.append(record.key)
        return 0

    def count(self, _):
        return 1


def test_partitioners_have_the_bytes():
    async def take(value, key):
        pass

    partitioner = NotingKeys()
    with WorkerBench(declared(take, partitioner=partitioner, key_deserializer=sensor)) as bench:
        bench.feed(b"a", key=SENSOR.bytes)
    assert set(partitioner.keys) == {SENSOR.bytes}


def test_they_reach_processes_of_spark():
    async def take(value, key):
        pass

    made = declared(take, value_deserializer=float, key_deserializer=sensor).task
    copied = cloudpickle.loads(cloudpickle.dumps(made))
    assert copied.value_deserializer is float
    assert copied.key_deserializer(SENSOR.bytes) == SENSOR


async def everything(value: float, key: UUID):
    pass


async def only_record(record):
    pass


async def looks_up(value, key: References):
    pass


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (everything, {"key_deserializer": "text"}, "key_deserializer is 'text'"),
        (everything, {"value_deserializer": 7, "key_deserializer": sensor}, "value_deserializer"),
        (only_record, {"value_deserializer": float}, "only_record takes no value"),
        (only_record, {"key_deserializer": sensor}, "only_record takes no key"),
        (looks_up, {"key_deserializer": sensor, "references": {"key": ROWS}}, "a reference 'key'"),
        (
            everything,
            {"topic": ROWS, "value_deserializer": float, "key_deserializer": sensor},
            "topic 'rows' an event class",
        ),
    ],
)
def test_a_deserializer_without_use_is_refused(function, options, message):
    found = messages(function, **options)
    assert any(message in text for text in found), found


def test_an_annotation_is_what_the_deserializer_makes():
    options = {"value_deserializer": float, "key_deserializer": sensor}
    assert messages(everything, **options) == []
