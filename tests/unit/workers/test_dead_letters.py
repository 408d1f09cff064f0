"""Dead letters of an instance, with lists in place of Kafka."""

import asyncio
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.waiting import LIMIT_SECONDS, until

from headrace.errors import BrokerUnreachableError, RecordRejectedError, SinkError
from headrace.kafka.dead_letters import writer as dead_letter_writer
from headrace.kafka.dead_letters.letters import StoredDeadLetter
from headrace.model import DeadLetter, Topic, TopicPartition
from headrace.workers import RetryTopics, Worker, WorkerTask
from headrace.workers.failures import dead_letters
from headrace.workers.failures.dead_letters import BatchedDeadLetters
from headrace.workers.lanes.offsets import TimestampIndex
from headrace.workers.timing import WorkerTiming

HERE, GONE = TopicPartition("t", 0), TopicPartition("t", 1)


class Kafka:
    """``writes`` are lists of offsets; a write or look-up ends when its event is set.

    The next write fails with ``failure``; ``away`` questions have no answer.
    """

    def __init__(self):
        self.stored, self.writes, self.look_ups = [], [], 0
        self.may_write, self.may_find = threading.Event(), threading.Event()
        self.may_write.set()
        self.may_find.set()
        self.failure, self.away = None, 0
        self.end, self.first_ms = 0, 0

    def topic_ids(self, config, names):
        if self.away:
            self.away -= 1
            raise BrokerUnreachableError("nowhere", "silence")
        return dict.fromkeys(names, "")

    def dead_letter_record(self, letter, name, version, topic_id):
        return letter

    def send_each(self, config, given):
        given, (failure, self.failure) = list(given), (self.failure, None)
        self.writes.append([one.offset for one in given])
        assert self.may_write.wait(LIMIT_SECONDS)
        if failure is not None:
            raise failure
        self.stored += [letter for letter in given if not letter.headers]
        rejection = RecordRejectedError("t.dead", "bad header")
        return {at: rejection for at, letter in enumerate(given) if letter.headers}

    def find_written(self, config, topic, name, since_ms=-1):
        self.look_ups += 1
        self.since_ms = since_ms
        found = list(self.stored)
        assert self.may_find.wait(LIMIT_SECONDS)
        for number, one in enumerate(found):
            yield StoredDeadLetter(one, name, "1", "id", 0, (GONE, number), number)

    def watermarks(self, config, partitions):
        return dict.fromkeys(partitions, (0, self.end))

    def first_timestamps(self, config, positions):
        return dict.fromkeys(positions, self.first_ms) if self.first_ms else {}


@pytest.fixture
def kafka(monkeypatch):
    made = Kafka()
    for name in ("dead_letter_record", "send_each", "find_written", "topic_ids"):
        monkeypatch.setattr(dead_letter_writer, name, getattr(made, name))
    for name in ("watermarks", "first_timestamps"):
        monkeypatch.setattr(dead_letters, name, getattr(made, name))
    return made


def letter(offset, partition=HERE):
    return DeadLetter(partition, offset, "bad", "", None, None)


def here(committable=0, *timestamps_ms):
    times = TimestampIndex()
    for offset, timestamp_ms in enumerate(timestamps_ms):
        times.read(offset, timestamp_ms)
    return {HERE: SimpleNamespace(partition=HERE, committable=committable, times=times)}


TIMING = WorkerTiming(letter_retry_seconds=0.001)


def writer(committable=0, timestamps_ms=(), timing=TIMING, **declared):
    made = BatchedDeadLetters(Worker("w", Topic("t"), WorkerTask, **declared), {}, timing)
    made.on_rebalance(here(committable, *timestamps_ms))
    return made


def write(writer, *offsets):
    return [asyncio.create_task(writer.write(letter(one))) for one in offsets]


def test_letters_that_come_during_a_write_go_together_in_the_next(kafka):
    async def run():
        made = writer()
        kafka.may_write.clear()
        first = write(made, 0)
        await until(lambda: kafka.writes)
        others = write(made, 1, 2, 3)
        await asyncio.sleep(0)
        assert not any(one.done() for one in first + others)
        kafka.may_write.set()
        await asyncio.gather(*first, *others)

    asyncio.run(run())
    assert kafka.writes == [[0], [1, 2, 3]]
    assert kafka.look_ups == 1


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("timestamps_ms", "unread", "since_ms"),
    [
        ((5 * HOUR_MS, 7 * HOUR_MS), {}, 6 * HOUR_MS),
        ((), {"end": 9, "first_ms": 3 * HOUR_MS}, 2 * HOUR_MS),
        ((), {"end": 9}, -1),
        ((10**15, 10**15 + HOUR_MS), {}, -1),
    ],
    ids=["of the first that is not done", "asked for", "not known", "from the future"],
)
def test_letters_are_looked_for_since_the_oldest_record_that_is_not_done(
    kafka, timestamps_ms, unread, since_ms
):
    vars(kafka).update(unread)

    async def run():
        await asyncio.gather(*write(writer(1, timestamps_ms), 1))

    asyncio.run(run())
    assert kafka.since_ms == since_ms


def test_a_write_has_no_more_than_so_many(kafka):
    async def run():
        made = writer()
        made.max_batch_letters = 2
        await asyncio.gather(*write(made, *range(5)))

    asyncio.run(run())
    assert kafka.writes == [[0, 1], [2, 3], [4]]


def test_a_letter_that_is_refused_is_written_without_headers_and_holds_up_no_other(kafka):
    refused = replace(letter(1), headers=(("name", b"value"),), detail="long")

    async def run():
        made = writer()
        others = write(made, 0, 2)
        await asyncio.gather(made.write(refused), *others)

    asyncio.run(run())
    assert kafka.writes == [[0, 2, 1], [1]]
    plain = kafka.stored[-1]
    assert (plain.offset, plain.headers) == (1, ())
    assert "bad header" in plain.detail


def test_a_write_that_fails_fails_each_of_its_letters_and_no_other(kafka):
    kafka.failure = refused = SinkError("t.dead", "too large")

    async def run():
        made = writer()
        kafka.may_write.clear()
        failing = write(made, 0, 1)
        await until(lambda: kafka.writes)
        later = write(made, 2)
        kafka.may_write.set()
        assert await asyncio.gather(*failing, return_exceptions=True) == [refused, refused]
        await asyncio.gather(*later)

    asyncio.run(run())
    assert [one.offset for one in kafka.stored] == [2]


def test_what_is_not_waited_for_any_more_is_not_written(kafka):
    async def run():
        made = writer()
        kafka.may_write.clear()
        [begun] = write(made, 0)
        await until(lambda: kafka.writes)
        [given_up, waited_for] = write(made, 1, 2)
        await asyncio.sleep(0)
        begun.cancel()
        given_up.cancel()
        kafka.may_write.set()
        await waited_for

    asyncio.run(run())
    assert kafka.writes == [[0], [2]]


def test_letters_wait_while_kafka_is_away(kafka):
    async def run():
        kafka.away = 3
        await asyncio.gather(*write(writer(), 0))

    asyncio.run(run())
    assert (kafka.away, kafka.writes) == (0, [[0]])


def test_what_is_given_up_while_kafka_is_away_is_not_written(kafka):
    async def run():
        kafka.away = 10**9
        [given_up, waited_for] = write(writer(), 0, 1)
        await until(lambda: kafka.away < 10**9 - 1)
        given_up.cancel()
        kafka.away = 0
        await waited_for

    asyncio.run(run())
    assert kafka.writes == [[1]]


def test_kafka_may_not_be_away_for_ever(kafka):
    kafka.away = 10**9
    timing = WorkerTiming(letter_lookup_seconds=0.0)
    with pytest.raises(BrokerUnreachableError):
        asyncio.run(writer(timing=timing).write(letter(0)))


def test_of_what_was_written_before_only_what_may_come_again_is_known(kafka):
    kafka.stored = [letter(1), letter(7), letter(8, GONE)]

    async def run():
        made = writer(committable=5)
        await asyncio.gather(*write(made, 7, 9))
        assert [*made._writer._written["t"]] == [(HERE, 7, -1)]

    asyncio.run(run())
    assert kafka.writes == [[9]]


def test_letters_are_looked_for_again_when_partitions_moved(kafka):
    async def run():
        made = writer()
        await asyncio.gather(*write(made, 0))
        kafka.stored.append(letter(1))  # by the one that had the partition meanwhile
        made.on_rebalance(here())
        await asyncio.gather(*write(made, 0, 1, 2))

    asyncio.run(run())
    assert kafka.writes == [[0], [2]]


def test_partitions_that_move_while_letters_are_looked_for_have_them_looked_for_again(kafka):
    async def run():
        made = writer()
        kafka.may_find.clear()
        waiting = write(made, 0)
        await until(lambda: kafka.look_ups)
        kafka.stored.append(letter(0))
        made.on_rebalance(here())
        kafka.may_find.set()
        await asyncio.gather(*waiting)

    asyncio.run(run())
    assert kafka.look_ups == 2
    assert kafka.writes == []


def test_a_record_that_waits_twice_in_a_retry_topic_is_one_letter(kafka):
    async def run():
        made = writer(on_failure=RetryTopics())
        await asyncio.gather(*write(made, 3, 3, 4))
        await asyncio.gather(*write(made, 4, 5))

    asyncio.run(run())
    assert kafka.writes == [[3, 4], [5]]


def test_with_retry_topics_the_latest_dead_letters_of_all_partitions_are_known(kafka, monkeypatch):
    monkeypatch.setattr(BatchedDeadLetters, "max_remembered", 3)
    kafka.stored = [letter(number) for number in (0, 9, 1, 8)]

    async def run():
        made = writer(committable=100, on_failure=RetryTopics())
        await asyncio.gather(*write(made, 9))
        assert [offset for _, offset, _ in made._writer._written["t"]] == [9, 1, 8]
        await asyncio.gather(*write(made, 5, 6))
        assert [offset for _, offset, _ in made._writer._written["t"]] == [8, 5, 6]

    asyncio.run(run())
    assert kafka.writes == [[5, 6]]
