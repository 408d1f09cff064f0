"""References of a worker: what tasks look up, and what is made of the records of a topic."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.instances import drill
from tests.waiting import until

from headrace.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    RegistryUnreachableError,
)
from headrace.events.avro.values import AvroWriter, avro_schema
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.model import Avro, Topic, TopicPartition
from headrace.testing.bench_instance import Message, SentRecord
from headrace.workers import References, Worker, WorkerTask
from headrace.workers.references import followed
from headrace.workers.references.followed import FollowedReferences
from headrace.workers.references.lookups import EventLookups
from headrace.workers.references.table import ReferenceTables, WorkerReference
from headrace.workers.tasks.references import changed
from headrace.workers.timing import WorkerTiming


@dataclass
class Dated:
    since: datetime


KEYS = st.sampled_from([b"a", b"b", b"c"])
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.integers()), max_size=30)


@dataclass
class Account:
    plan: str

    def __post_init__(self):
        if self.plan == "none":
            raise ValueError("no plan")


ACCOUNTS = Topic("accounts", event=Account, compaction=True)
AVRO = Topic("accounts", event=Account, compaction=True, format=Avro())
WRITTEN = AvroWriter(AVRO.schema, 1)(b'{"plan": "free"}')


def table_of(topic=ACCOUNTS, **declared):
    declared = {"references": {"accounts": topic}} | declared
    return WorkerReference(Worker("w", Topic("orders"), WorkerTask, **declared), topic)


def record(key, value, headers=()):
    return Message(TopicPartition("accounts", 0), 7, SentRecord("accounts", value, key, headers), 0)


def take(table, **values):
    for key, plan in values.items():
        value = None if plan is None else b'{"plan": "%s"}' % plan.encode()
        table.take(key.encode(), None if value is None else record(key.encode(), value))


# -- what a task looks up -------------------------------------------------------------------------


def test_a_key_is_its_bytes_its_text_or_its_number():
    references = References({"ann": 1, b"\xff": 2, 7: 3})
    assert (references["ann"], references[b"ann"], references.get("ann")) == (1, 1, 1)
    assert (references[b"\xff"], references[7], references["7"], references[b"7"]) == (2, 3, 3, 3)
    assert {*references} == {b"ann", b"\xff", b"7"}
    assert (len(references), references == {b"ann": 1, b"\xff": 2, b"7": 3}) == (3, True)


def test_a_key_without_a_value_is_missing_and_so_is_that_of_a_record_without_key():
    references = References({"ann": 1})
    for key in ("bob", b"bob", 7, None):
        assert key not in references
        assert (references.get(key), references.get(key, 5)) == (None, 5)
        with pytest.raises(KeyError):
            references[key]
    for wrong in (1.5, True, ["ann"]):
        with pytest.raises(TypeError, match="is no record key"):
            references.get(wrong)


@given(CHANGES)
def test_what_a_task_has_does_not_change_while_newer_values_arrive(changes):
    references, model, held = References[int](), {}, []
    for key, value in changes:
        held.append((references, dict(model)))
        references = changed(references, key, value)
        model[key] = value
        model = {key: value for key, value in model.items() if value is not None}
    for snapshot, values in [*held, (references, model)]:
        assert snapshot == values
        assert len(snapshot) == len(values)


def test_references_are_looked_up_in_another_process_too():
    """Where the same bytes have another hash."""
    pickled = pickle.dumps(References({str(number): number for number in range(100)}))
    code = (
        "import pickle, sys; found = pickle.loads(sys.stdin.buffer.read());"
        "print(sum(found[number] for number in range(100)), len(found))"
    )
    for seed in "12":
        ended = subprocess.run(
            [sys.executable, "-c", code],
            input=pickled,
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        )
        assert ended.stdout.split() == [b"4950", b"100"]


# -- the table ------------------------------------------------------------------------------------


def test_the_newest_record_of_a_key_counts_and_a_tombstone_deletes_it():
    table = table_of()
    take(table, ann="free", bob="free")
    take(table, ann="gold", bob=None)
    assert (table.is_read, len(table.snapshot)) == (False, 0)
    table.publish()
    assert table.snapshot == {b"ann": Account("gold")}
    before = table.snapshot
    take(table, ann=None, cid="free")
    assert table.snapshot == {b"cid": Account("free")}
    assert before == {b"ann": Account("gold")}


@pytest.mark.parametrize("value", [b"no JSON", b'{"plan": 7}', b'{"plan": "none"}', b""])
def test_what_is_no_event_has_no_value_not_even_the_former_and_is_named(value, caplog):
    table = table_of()
    take(table, ann="free", bob="free")
    table.publish()
    table.take(b"ann", record(b"ann", value))
    assert table.snapshot == {b"bob": Account("free")}
    assert (table.rejected, table.bytes) == (1, len(b'bob{"plan": "free"}'))
    assert "w: the record of accounts at offset 7 with key b'ann' is no event of it" in caplog.text


def test_bounds_of_the_event_time_do_not_count():
    topic = Topic("accounts", event=Dated, event_time="since", compaction=True)
    table = table_of(topic)
    table.take(b"ann", record(b"ann", b'{"since": "1970-01-01T00:00:00Z"}'))
    assert table.rejected == 0


def test_of_a_topic_without_an_event_class_values_are_bytes():
    table = table_of(Topic("accounts", compaction=True))
    table.take(b"ann", record(b"ann", b""))
    table.publish()
    assert table.snapshot == {b"ann": b""}


@given(st.lists(st.tuples(CHANGES, CHANGES), min_size=1, max_size=4))
def test_while_a_topic_is_read_again_no_key_has_an_older_value(reads):
    """Each read is of records up to the end, and of those that come after it."""
    table, seen = table_of(Topic("numbers", compaction=True)), {}
    for until_end, later in reads:
        table.restart()
        model = {}
        for key, number in until_end:
            apply(table, model, key, number)
            assert table.snapshot == seen
        table.publish()
        for key, number in later:
            assert table.snapshot == model
            apply(table, model, key, number)
        assert table.snapshot == model
        assert table.bytes == sum(map(len, [*model, *model.values()]))
        seen = model


def apply(table, model, key, number):
    value = None if number is None else b"%d" % number
    table.take(key, None if value is None else record(key, value))
    model.pop(key, None)
    if value is not None:
        model[key] = value


def test_a_schema_registry_that_does_not_answer_rejects_nothing():
    def unreachable(_):
        raise RegistryUnreachableError("http://registry", "no answer")

    table = table_of(AVRO, lookups=EventLookups(unreachable))
    with pytest.raises(RegistryUnreachableError):
        table.take(b"ann", record(b"ann", WRITTEN))
    assert (table.taken, table.rejected) == (0, 0)


def test_a_task_gets_the_newest_at_each_access_and_keeps_what_it_got():
    class Task(WorkerTask):
        pass

    tables = ReferenceTables(
        Worker("w", Topic("orders"), Task, references={"accounts": ACCOUNTS, "more": ACCOUNTS})
    )
    task = tables.given_to(Task)()
    for table in tables.tables.values():
        table.publish()
    assert dict(task.references) == {"accounts": {}, "more": {}}
    held = task.references["accounts"]
    take(tables.tables["accounts"], ann="gold")
    assert (held.get("ann"), task.references["accounts"]["ann"]) == (None, Account("gold"))


# -- followed -------------------------------------------------------------------------------------


class Follower:
    """Stands for one of a topic; the test is its thread."""

    def __init__(self, config, name, on_record, *, on_start, on_ready, value_of):
        self.take = lambda key, record: on_record(key, record and value_of(record))
        self.start, self.end, self.compared = on_start, on_ready, []
        self.is_at_end, self.failure = True, None

    def compare(self, live):
        self.compared.append(live)

    def close(self):
        self.is_at_end = False


def drill_of(monkeypatch, steps, topic=ACCOUNTS, lookups=None, **timing):
    """Runs ``steps(references, follower)``."""
    followers = []

    def follow(*arguments, **options):
        followers.append(Follower(*arguments, **options))
        return followers[-1]

    monkeypatch.setattr(followed, "TableFollower", follow)
    declared = {"references": {"accounts": topic}, "lookups": lookups}

    async def run():
        worker = Worker("w", Topic("orders"), WorkerTask, **declared)
        references = FollowedReferences(worker, {}, WorkerTiming(**timing))
        try:
            await steps(references, followers[0])
        finally:
            await references.close()

    drill(run())


def test_an_instance_waits_as_long_as_records_come(monkeypatch):
    async def steps(references, follower):
        waiting = asyncio.create_task(references.wait_ready(lambda: False))
        for _ in range(5):
            await asyncio.sleep(0.1)
            take(references.tables.tables["accounts"], ann="free")
        assert not waiting.done()
        follower.end()
        assert await waiting

    drill_of(monkeypatch, steps, reference_seconds=0.4)


def test_an_instance_without_the_end_of_a_reference_does_not_start(monkeypatch):
    async def steps(references, follower):
        with pytest.raises(BrokerUnreachableError, match="accounts: not read to its end"):
            await references.wait_ready(lambda: False)

    drill_of(monkeypatch, steps, reference_seconds=0.1)


def test_an_instance_that_may_not_read_a_reference_does_not_wait(monkeypatch):
    async def steps(references, follower):
        follower.failure = AuthorizationError("READ", "topic accounts", "User:w")
        with pytest.raises(AuthorizationError):
            await references.wait_ready(lambda: False)

    drill_of(monkeypatch, steps)


def test_an_instance_that_is_stopped_meanwhile_does_not_wait(monkeypatch):
    async def steps(references, follower):
        assert not await references.wait_ready(lambda: True)
        follower.end()
        assert await references.wait_ready(lambda: True)

    drill_of(monkeypatch, steps)


def test_a_record_waits_for_its_schema_and_the_reference_is_behind(monkeypatch):
    is_up = threading.Event()

    def lookup(_):
        if not is_up.is_set():
            raise RegistryUnreachableError("http://registry", "no answer")
        return avro_schema(AVRO.schema)

    async def steps(references, follower):
        def behind():
            return references.figures()["references_behind"]

        taking = asyncio.create_task(
            asyncio.to_thread(follower.take, b"ann", record(b"ann", WRITTEN))
        )
        await until(lambda: behind() == 1)
        is_up.set()
        await taking
        follower.end()
        assert references.tables["accounts"] == {b"ann": Account("free")}
        assert behind() == 0

    lookups = EventLookups(lookup)
    drill_of(monkeypatch, steps, AVRO, lookups, reference_retry_seconds=0.01)


def test_topics_are_compared_and_figures_say_which_are_behind(monkeypatch, caplog):
    answer = {"accounts": LiveTopic("accounts", "id", 1, 1)}
    failures = []

    def describe(*_):
        if failures:
            raise failures[0]
        return dict(answer)

    monkeypatch.setattr(followed, "describe", describe)

    async def steps(references, follower):
        def behind():
            return references.figures()["references_behind"]

        watching = asyncio.create_task(references.watch())
        await until(lambda: follower.compared)
        assert behind() == 0
        live = answer.pop("accounts")
        await until(lambda: behind() == 1)
        answer["accounts"] = live
        await until(lambda: behind() == 0)
        failures.append(BrokerUnreachableError("127.0.0.1:9", "no answer"))
        await until(lambda: behind() == 1)
        failures.clear()
        await until(lambda: behind() == 0)
        assert set(follower.compared) == {live}
        watching.cancel()

    drill_of(monkeypatch, steps, topic_check_seconds=0.01)
    assert "w: cannot describe the topics of its references, retrying" in caplog.text
