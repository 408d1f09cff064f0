"""A worker on a bench: what it does with records, without Kafka and with a clock moved by hand."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import threading
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import (
    DeadLetterLimitError,
    InvalidRecordError,
    ProcessingFailedError,
    TaskTimeoutError,
    WorkerStateError,
)
from headrace.kafka.admin.record_limits import MAX_MESSAGE_BYTES
from headrace.model import (
    Avro,
    DeadLetterLimit,
    EpochMillis,
    Guarantee,
    Json,
    JsonSchema,
    Protobuf,
    Topic,
)
from headrace.testing import Outcome, SentRecord, WorkerBench
from headrace.workers import (
    BatchWorkerTask,
    DeadLetters,
    KeyHash,
    Retry,
    RetryTopics,
    Skip,
    Worker,
    WorkerTask,
    worker,
)

CLICKS = Topic("clicks", key="user")
SECOND = timedelta(seconds=1)


@worker(topic=CLICKS, on_failure=DeadLetters())
async def copy(record, send):
    if record.value == b"bad":
        raise InvalidRecordError("bad-click", "it says so")
    send("copies", record.value, key=record.key, headers=record.headers)


class Failing(WorkerTask):
    """Fails until the attempt that the value names."""

    async def process(self, record):
        if record.attempt < int(record.value):
            raise OSError(f"attempt {record.attempt}")


def failing(policy, **declared):
    return Worker("w", CLICKS, Failing, on_failure=policy, **declared)


def outcomes(fed):
    return [record.outcome for record in fed]


# -- records --------------------------------------------------------------------------------------


def test_what_a_function_sends_is_seen_with_key_and_headers():
    with WorkerBench(copy) as bench:
        fed = bench.feed(b"1", "2", key="k", headers=(("trace", b"7"),))
    headers = (("trace", b"7"),)
    assert bench.sent == [SentRecord("copies", value, b"k", headers) for value in (b"1", b"2")]
    assert outcomes(fed) == [Outcome.PROCESSED] * 2
    assert bench.counts == {"rebalances": 1, "processed": 2}


def test_a_bench_is_fed_with_what_another_one_sent():
    @worker(topic=Topic("copies"))
    async def count(record, send):
        send("counts", record.key)

    with WorkerBench(copy) as first, WorkerBench(count) as second:
        first.feed({"user": "ann", "n": 1})
        second.feed(*first.sent)
    assert second.sent == [SentRecord("counts", b"ann")]


def test_a_dict_is_written_as_json_with_the_key_of_its_topic():
    with WorkerBench(copy) as bench:
        [with_key, without] = bench.feed({"user": 7}, {"n": 1})
    assert (with_key.record.key, with_key.record.value) == (b"7", b'{"user":7}')
    assert without.record.key is None


def test_a_dataclass_is_written_as_json_with_a_nested_key():
    @dataclasses.dataclass
    class Repo:
        name: str

    @dataclasses.dataclass
    class Push:
        repo: Repo

    @worker(topic=Topic("pushes", key="repo.name"))
    async def collect(record):
        """It is only looked at."""

    with WorkerBench(collect) as bench:
        [fed] = bench.feed(Push(Repo("kafka")))
    assert (fed.record.key, fed.record.value) == (b"kafka", b'{"repo":{"name":"kafka"}}')


def test_an_instance_of_the_event_class_is_written_as_its_topic_reads_it():
    class Push(NamedTuple):
        repo: str
        at: EpochMillis

    @worker(topic=Topic("pushes", event=Push, key="repo"))
    async def collect(record):
        """It is only looked at."""

    push = Push("kafka", datetime(2026, 1, 1, tzinfo=UTC))
    with WorkerBench(collect) as bench:
        [fed] = bench.feed(push)
        with pytest.raises(InvalidRecordError, match="'at' is a time without a zone"):
            bench.feed(push._replace(at=datetime(2026, 1, 1)))  # noqa: DTZ001
    written = b'{"repo":"kafka","at":1767225600000}'
    assert (fed.record.key, fed.record.value) == (b"kafka", written)


@dataclasses.dataclass
class Receipt:
    number: int
    price: Decimal
    at: datetime


RECEIPTS = Topic("receipts", event=Receipt, key="number")


class Receipted(WorkerTask):
    async def process(self, record):
        receipt = Receipt(7, Decimal("1.50"), datetime(2026, 1, 1, tzinfo=UTC))
        self.send("receipts", receipt)
        self.send("receipts", {"number": 8, "price": 2, "at": "2026-01-01T00:00:00Z"}, key=b"k")


@pytest.mark.parametrize("guarantee", Guarantee)
def test_events_that_are_sent_are_written_as_their_topic_declares(guarantee):
    declared = Worker("w", CLICKS, Receipted, guarantee=guarantee)
    with WorkerBench(declared, topics=[RECEIPTS]) as bench:
        bench.feed(b"1")
        assert bench.sent == [
            SentRecord(
                "receipts", b'{"number":7,"price":"1.50","at":"2026-01-01T00:00:00Z"}', b"7"
            ),
            SentRecord("receipts", b'{"number":8,"price":2,"at":"2026-01-01T00:00:00Z"}', b"k"),
        ]


def test_records_have_offsets_partitions_and_the_time_of_the_bench():
    with WorkerBench(copy, partitions=2, now=datetime(2026, 3, 1, tzinfo=UTC)) as bench:
        bench.advance(timedelta(milliseconds=1500))
        [first, second] = bench.feed(b"1", None, partition=1)
    assert [(one.record.partition, one.record.offset) for one in (first, second)] == [
        (1, 0),
        (1, 1),
    ]
    assert first.record.timestamp_ms == datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000 + 1500
    assert second.record.value is None


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"topic": "views"}, "does not read 'views', only clicks"),
        ({"partition": 1}, "no partition 1 of 'clicks'"),
    ],
)
def test_a_record_for_nobody_is_refused(where, message):
    with WorkerBench(copy) as bench, pytest.raises(ValueError, match=message):
        bench.feed(b"1", **where)


# -- forms of a task ------------------------------------------------------------------------------


class Sums(WorkerTask):
    """State, all five methods, ordinary functions."""

    def init(self, subpartition, config):
        self.sum, self.step = 0, config["step"]

    def process(self, record):
        self.sum += self.step * int(record.value)

    def punctuate(self, now):
        self.send("sums", f"{now:%H:%M:%S} {self.sum}".encode())

    def close(self):
        self.send("sums", b"closed")


def test_a_class_of_ordinary_functions_runs_with_its_config_and_its_timer():
    declared = Worker("sums", CLICKS, Sums, punctuate_every=60 * SECOND, config={"step": 1})
    with WorkerBench(declared, config={"step": 2}) as bench:
        bench.feed(b"1", b"2")
        assert [task.sum for task in bench.tasks] == [6]
        bench.advance(150 * SECOND)
        assert [sent.value for sent in bench.sent] == [b"00:01:00 6", b"00:02:00 6"]
    assert bench.sent[-1].value == b"closed"


def test_a_class_alone_is_enough():
    assert outcomes(WorkerBench(Failing).feed(b"1", b"0")) == [Outcome.PROCESSED] * 2


def test_ordinary_functions_run_on_a_thread():
    @worker(topic=CLICKS, parallelism=1)
    def name_thread(record, send):
        send("threads", threading.current_thread().name.encode())

    with WorkerBench(name_thread) as bench:
        bench.feed(b"1")
    assert bench.sent[0].value == b"name-thread-task-0"


def test_a_batch_task_gets_what_was_fed_together_and_its_bad_record_is_found():
    sizes = []

    class Batches(BatchWorkerTask):
        async def process_batch(self, records):
            sizes.append(records.num_rows)
            if b"bad" in records.column("value").to_pylist():
                raise ValueError("bad")

    with WorkerBench(Worker("w", CLICKS, Batches, on_failure=Skip())) as bench:
        assert outcomes(bench.feed(b"1", b"2")) == [Outcome.PROCESSED] * 2
        fed = bench.feed(b"3", b"bad", b"4")
    assert sizes == [2, 3, 1, 1, 1]
    assert outcomes(fed) == [Outcome.PROCESSED, Outcome.SKIPPED, Outcome.PROCESSED]


def test_an_observed_record_is_pending_until_its_observer_is_told():
    observers = {}

    class Observed(WorkerTask):
        async def process(self, record, observer):
            observers[record.value] = observer

    with WorkerBench(Worker("w", CLICKS, Observed, on_failure=Skip())) as bench:
        fed = bench.feed(b"1", b"2", b"3")
        assert outcomes(fed) == [Outcome.PENDING] * 3
        observers[b"3"].on_failure(OSError("no"))
        observers[b"2"].on_success()
        bench.advance(timedelta(0))
        assert outcomes(fed) == [Outcome.PENDING, Outcome.PROCESSED, Outcome.SKIPPED]
        assert bench.committable() == 0
        threading.Timer(0.05, observers[b"1"].on_success).start()
        bench.wait()
        assert bench.committable() == 3


def test_keys_share_the_lanes_that_the_partitioner_gives_them():
    lanes = defaultdict(set)

    class Keyed(WorkerTask):
        def init(self, subpartition, config):
            self.index = subpartition.index

        def process(self, record):
            lanes[record.key].add(self.index)

    with WorkerBench(Worker("w", CLICKS, Keyed, partitioner=KeyHash(4))) as bench:
        for number in range(20):
            bench.feed(b"1", key=f"{number % 5}")
        assert len(bench.tasks) == 4
    assert [len(indexes) for indexes in lanes.values()] == [1] * 5


# -- failures -------------------------------------------------------------------------------------


def test_an_invalid_record_is_a_dead_letter_with_its_reason():
    with WorkerBench(copy) as bench:
        [good, bad] = bench.feed(b"good", b"bad", key=b"k")
    [letter] = bench.dead_letters
    assert (letter.reason, letter.detail, letter.key) == ("bad-click", "it says so", b"k")
    assert (good.outcome, bad.outcome) == (Outcome.PROCESSED, Outcome.DEAD_LETTER)
    assert [type(error) for error in bad.errors] == [InvalidRecordError]


def test_a_worker_that_stops_at_failures_raises_what_an_instance_would():
    bench = WorkerBench(Failing)
    with pytest.raises(ProcessingFailedError, match=r"@0 failed: OSError: attempt 1") as raised:
        bench.feed(b"2")
    assert isinstance(raised.value.__cause__, OSError)
    with pytest.raises(WorkerStateError, match="the bench failed"):
        bench.feed(b"1")


def test_a_retry_in_place_holds_the_records_behind_it_until_it_is_due():
    with WorkerBench(failing(Retry(attempts=3, first_delay=10 * SECOND))) as bench:
        [slow, behind] = bench.feed(b"3", b"1")
        assert (slow.outcome, behind.outcome) == (Outcome.PENDING, Outcome.PENDING)
        bench.advance(29 * SECOND)
        assert (len(slow.errors), behind.outcome) == (2, Outcome.PENDING)
        bench.advance(SECOND)
        assert (slow.outcome, behind.outcome) == (Outcome.PROCESSED, Outcome.PROCESSED)
    assert bench.counts["retried"] == 2


def test_a_retry_topic_lets_the_records_behind_it_pass():
    policy = RetryTopics([10 * SECOND, 60 * SECOND])
    with WorkerBench(failing(policy)) as bench:
        [slow, lost, behind] = bench.feed(b"3", b"9", b"1", headers=(("trace", b"7"),))
        assert outcomes([slow, lost, behind]) == [
            Outcome.PENDING,
            Outcome.PENDING,
            Outcome.PROCESSED,
        ]
        bench.advance(10 * SECOND)
        assert [str(error) for error in slow.errors] == ["attempt 1", "attempt 2"]
        bench.advance(60 * SECOND)
    assert outcomes([slow, lost]) == [Outcome.PROCESSED, Outcome.DEAD_LETTER]
    [letter] = bench.dead_letters
    assert (letter.attempts, letter.offset, letter.headers) == (3, 1, (("trace", b"7"),))
    assert bench.sent == []


def test_too_many_dead_letters_end_it():
    limit = DeadLetterLimit(max_consecutive=2)
    with WorkerBench(failing(DeadLetters(limit))) as bench, pytest.raises(DeadLetterLimitError):
        bench.feed(b"9", b"9", b"9")


def test_a_send_that_fails_is_a_failed_attempt():
    unavailable = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with WorkerBench(copy) as bench:
        bench.failing_topics["copies"] = unavailable
        [fed] = bench.feed(b"1")
        del bench.failing_topics["copies"]
        bench.feed(b"2")
    assert (fed.outcome, fed.errors) == (Outcome.DEAD_LETTER, [unavailable])
    assert [sent.value for sent in bench.sent] == [b"2"]


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ({"value": {"a": 1}}, TypeError),
        ({"value": bytearray(b"1")}, TypeError),
        ({"value": b"1", "key": 7}, TypeError),
        ({"value": b"1", "headers": [("n", 7)]}, TypeError),
        ({"value": b"1", "partition": "0"}, TypeError),
        ({"value": b"1", "partition": 2**31}, OverflowError),
        ({"value": bytes(MAX_MESSAGE_BYTES + 1)}, KafkaException),
    ],
)
def test_a_record_that_the_client_library_does_not_take_is_a_failed_attempt(sent, error):
    @worker(topic=CLICKS, on_failure=DeadLetters())
    async def send_it(record, send):
        send("copies", **sent)

    with WorkerBench(send_it) as bench:
        [fed] = bench.feed(b"1")
    assert (fed.outcome, [type(each) for each in fed.errors]) == (Outcome.DEAD_LETTER, [error])
    assert bench.sent == []


def test_text_is_sent_as_its_bytes():
    @worker(topic=CLICKS)
    async def send_text(record, send):
        send("copies", "zażółć", key="k", headers=[("a", "b"), ("c", None)])

    with WorkerBench(send_text) as bench:
        bench.feed(b"1")
    headers = (("a", b"b"), ("c", None))
    assert bench.sent == [SentRecord("copies", "zażółć".encode(), b"k", headers)]


# -- time -----------------------------------------------------------------------------------------


def test_a_coroutine_that_takes_too_long_times_out_by_the_clock_of_the_bench():
    @worker(topic=CLICKS, processing_timeout=60 * SECOND, on_failure=Skip())
    async def sleep(record):
        await asyncio.sleep(float(record.value))

    with WorkerBench(sleep) as bench:
        [quick, slow] = bench.feed(b"59", b"90")
        bench.advance(59 * SECOND)
        assert (quick.outcome, slow.outcome) == (Outcome.PROCESSED, Outcome.PENDING)
        bench.advance(61 * SECOND)
        assert (slow.outcome, bench.counts["timed_out"]) == (Outcome.SKIPPED, 1)


def test_an_init_that_does_not_end_ends_the_instance():
    class Waiting(WorkerTask):
        async def init(self, subpartition, config):
            await asyncio.Event().wait()

        async def process(self, record):
            """Never called."""

    declared = Worker("w", CLICKS, Waiting, processing_timeout=SECOND)
    with WorkerBench(declared) as bench, pytest.raises(TaskTimeoutError, match="init of"):
        bench.advance(timedelta(minutes=2))


def test_a_record_that_is_not_accepted_is_asked_about_again():
    gates = {"open": False}

    class Gated(WorkerTask):
        def accept(self, record):
            return gates["open"]

        async def process(self, record):
            """Done."""

    with WorkerBench(Worker("w", CLICKS, Gated)) as bench:
        [held] = bench.feed(b"1")
        gates["open"] = True
        assert held.outcome is Outcome.PENDING
        bench.advance(SECOND)
        assert held.outcome is Outcome.PROCESSED
        gates["open"] = False
        [held] = bench.feed(b"2")
        gates["open"] = True
        [behind] = bench.feed(b"3")
        assert (held.outcome, behind.outcome) == (Outcome.PROCESSED, Outcome.PROCESSED)


def test_threads_and_sockets_are_waited_for_in_real_time():
    async def answer(reader, writer):
        line = await reader.readline()
        await asyncio.to_thread(time.sleep, 0.02)
        writer.write(line.upper())
        writer.close()

    class Asking(WorkerTask):
        async def init(self, subpartition, config):
            self.server = await asyncio.start_server(answer, "127.0.0.1", 0)
            self.port = self.server.sockets[0].getsockname()[1]

        async def process(self, record):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(record.value + b"\n")
            self.send("answers", await reader.readline())
            writer.close()

        async def close(self):
            self.server.close()

    with WorkerBench(Asking) as bench:
        [fed] = bench.feed(b"hello")
    assert (fed.outcome, bench.sent[0].value) == (Outcome.PROCESSED, b"HELLO\n")


# -- the end --------------------------------------------------------------------------------------


def test_a_close_that_fails_is_told():
    class Leaking(Failing):
        async def close(self):
            raise OSError("leaked")

    bench = WorkerBench(Leaking)
    with pytest.raises(OSError, match="leaked"):
        bench.close()
    bench.close()


def test_a_bench_is_used_until_it_is_closed():
    bench = WorkerBench(Failing)
    bench.close()
    with pytest.raises(WorkerStateError, match="the bench was closed"):
        bench.advance(SECOND)


def test_a_failure_of_the_test_is_not_hidden_by_one_of_close():
    class Leaking(Failing):
        async def close(self):
            raise OSError("leaked")

    with pytest.raises(LookupError), WorkerBench(Leaking):
        raise LookupError("of the test")


def test_a_bench_that_is_dropped_closes_its_tasks():
    closed = []

    class Closing(Failing):
        async def close(self):
            closed.append(True)

    WorkerBench(Closing).feed(b"1")
    gc.collect()
    assert closed == [True]


# -- references -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Account:
    plan: str


class Waiting(WorkerTask):
    """Accepts a click once its user is known, and takes a second for it."""

    def accept(self, record):
        return record.key in self.references["accounts"]

    async def process(self, record):
        accounts = self.references["accounts"]
        await asyncio.sleep(1)
        for table in (accounts, self.references["accounts"]):
            self.send("plans", table[record.key].plan.encode())


@pytest.mark.parametrize("format_", [Json(), Avro(), Protobuf(), JsonSchema()])
def test_references_have_what_the_test_says_and_newer_values(format_):
    accounts = Topic("accounts", event=Account, compaction=True, format=format_)
    declared = Worker("w", CLICKS, Waiting, references={"accounts": accounts})
    with WorkerBench(declared, references={"accounts": {"bob": Account("free")}}) as bench:
        [click] = bench.feed(b"1", key="ann")
        assert (click.outcome, bench.counts["processed"]) == (Outcome.PENDING, 0)
        bench.refer("accounts", {"ann": {"plan": "free"}, b"bob": None})
        bench.advance(SECOND)
        bench.refer("accounts", {"ann": Account("gold")})
        bench.advance(SECOND)
        assert click.outcome is Outcome.PROCESSED
    assert [record.value for record in bench.sent] == [b"free", b"gold"]


def test_a_retry_sees_newer_references():
    @worker(
        topic=CLICKS,
        references={"accounts": Topic("accounts", event=Account, compaction=True)},
        on_failure=Retry(attempts=2, first_delay=SECOND),
    )
    def look_up(record, accounts, send):
        send("plans", accounts[record.key].plan.encode())

    with WorkerBench(look_up) as bench:
        [click] = bench.feed(b"1", key="ann")
        assert isinstance(click.errors[0], KeyError)
        bench.refer("accounts", {"ann": Account("gold"), "bob": b"no account"})
        bench.advance(SECOND)
        assert click.outcome is Outcome.PROCESSED


def test_a_reference_that_the_worker_does_not_declare_is_named():
    with pytest.raises(ValueError, match="the worker has no reference 'accounts', only none"):
        WorkerBench(copy, references={"accounts": {}})


@pytest.mark.parametrize("policy", [Retry(2, SECOND), RetryTopics([SECOND])])
def test_a_worker_that_is_exactly_once_sends_for_a_record_when_it_is_done(policy):
    class FailingOnce(WorkerTask):
        async def process(self, record):
            await self.send("copies", record.value)
            assert not bench.sent, "an await returns before the record is done"
            if record.attempt == 1:
                raise ConnectionError("no answer")

        async def close(self):
            self.send("copies", b"closed")

    declared = Worker(
        "copy", CLICKS, FailingOnce, on_failure=policy, guarantee=Guarantee.EXACTLY_ONCE
    )
    with WorkerBench(declared) as bench:
        bench.feed("a")
        assert bench.sent == []
        bench.advance(2 * SECOND)
        assert [record.value for record in bench.sent] == [b"a"]
    assert bench.sent[-1].value == b"closed"


def test_a_send_in_accept_is_refused_also_while_another_record_is_in_process():
    """It would be written with that record, or be dropped with its attempt."""
    observers = []

    class Accepting(WorkerTask):
        def accept(self, record):
            if record.offset:
                self.send("copies", b"accepted")
            return True

        def process(self, record, observer):
            observers.append(observer)

    policy, guarantee = Skip(), Guarantee.EXACTLY_ONCE
    worker = Worker("copy", CLICKS, Accepting, on_failure=policy, guarantee=guarantee)
    with WorkerBench(worker) as bench:
        bench.feed("a")
        [second] = bench.feed("b")
        assert second.outcome is Outcome.SKIPPED
        observers[0].on_success()
    assert len(observers) == 1
    assert bench.sent == []


def test_a_worker_that_is_exactly_once_refuses_what_no_transaction_would_have():
    late = []

    class Late(WorkerTask):
        async def process(self, record):
            late.append(asyncio.create_task(self.send_later()))

        async def send_later(self):
            await asyncio.sleep(1)
            self.send("copies", b"late")

    with WorkerBench(Worker("late", CLICKS, Late, guarantee=Guarantee.EXACTLY_ONCE)) as bench:
        bench.feed("a")
        bench.advance(2 * SECOND)
    assert bench.sent == []
    assert "after the record" in str(late[0].exception())
