"""State in random histories of crashes, moves, failures and restores, against a dict."""

import asyncio
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.workers.model_brokers import (
    KEYS,
    PARTITIONS,
    RECORDS,
    Instance,
    ended,
    is_all_committed,
    model_brokers,
    move,
)
from tests.waiting import until

from headrace.model import Guarantee, Topic
from headrace.workers import KeyHash, Retry, Skip, Worker, WorkerTask
from headrace.workers.state.timers import decoded_times

RESTART_AT = 5  # at so much a key's count is deleted
TTL_MS = 1000
TIMER = 1_000_000  # added to the time of a timer, so that it differs from the value of a record


def is_bad(value):
    return value % 11 == 3


def counting(rng):
    class Counting(WorkerTask):
        async def process(self, record):
            count = self.state.get(0) + 1
            await asyncio.sleep(rng.choice((0, 0, 0.001, 0.01)))
            assert self.state.get(0) == count - 1
            if count == RESTART_AT:
                self.state.delete()
            else:
                self.state.set(count)
            self.send("out", b"%d" % (int(record.value) * 100 + count))
            if is_bad(int(record.value)) or (rng.random() < 0.2 and record.attempt < 10):
                raise ConnectionError("no answer")

    return Counting


def modelled(timestamps=None):
    """What is sent, and what is kept: of each partition and key.

    With ``timestamps`` of the records, values are over by ``TTL``.
    """
    sent, kept = [], [{} for _ in PARTITIONS]
    for place in PARTITIONS:
        counts, set_at, now = kept[place.partition], {}, -1
        for offset in range(RECORDS):
            value = place.partition * 1000 + offset
            if timestamps is not None:
                now = max(now, timestamps[value])
                for key in [key for key in counts if now >= set_at[key] + TTL_MS]:
                    del counts[key]
            key = b"%d" % (value % KEYS)
            if is_bad(value):
                continue
            count = counts.get(key, 0) + 1
            sent.append(value * 100 + count)
            counts.pop(key, None)
            if count != RESTART_AT:
                counts[key], set_at[key] = count, now
    return sent, kept


async def worked(brokers, rng, lanes, task=None, **declared):
    """Two instances that crash, are evicted and exchange partitions; returns what failed."""
    failures, of_killed = [], []

    def started(number):
        # Another number of subpartitions with each start: state is by key.
        worker = Worker(
            "w",
            Topic("clicks"),
            task or counting(rng),
            partitioner=KeyHash(rng.choice(lanes)),
            on_failure=Retry(attempts=11, first_delay=timedelta(0), then=Skip()),
            commit_every=timedelta(milliseconds=2),
            revoke_timeout=timedelta(milliseconds=rng.choice((0, 5, 1000))),
            guarantee=Guarantee.EXACTLY_ONCE,
            state=int,
            **declared,
        )
        own = []
        return Instance(brokers, number, worker, own), own

    instances = [started(number) for number in range(2)]
    for _ in range(6):
        move(brokers, rng)
        await asyncio.sleep(rng.choice((0.01, 0.05)))
        number = rng.randrange(2)
        if rng.random() < 0.3:
            brokers.evict(number)
        elif rng.random() < 0.5:
            killed, own = instances[number]
            of_killed.append(own)
            killed.kill(brokers, number)
            instances[number] = started(number)
    brokers.faults = False
    running = [instance for instance, _ in instances]
    await until(
        lambda: (
            any(own for _, own in instances)
            or (is_all_committed(brokers, running) and not is_changed(running))
            or ended(running)
        )
    )
    ended(running)
    failures = [failure for _, own in instances for failure in own]
    for instance in running:
        held = [assigned.state.values for assigned in instance.assignments.values()]
        assert instance.assignments.state.keys == sum(map(len, held))
    for instance in running:
        await instance.stop()
    return failures


def is_changed(instances):
    """Whether something is not committed, or a timer is due."""
    assigned = [assigned for one in instances for assigned in one.assignments.values()]
    return any(
        partition.is_changed or partition.state.timers.due_lanes(partition.state.stream_time.latest)
        for partition in assigned
    )


@pytest.mark.parametrize("transaction_bytes", [2**20, 300])
@pytest.mark.parametrize("metadata_bytes", [0, 60, 4096])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_the_state_is_that_of_each_record_once(
    monkeypatch, seed, metadata_bytes, transaction_bytes
):
    rng = random.Random(f"state {seed}")
    brokers = model_brokers(monkeypatch, rng, metadata_bytes, transaction_bytes)
    assert asyncio.run(worked(brokers, rng, lanes=(1, 4, 7))) == []
    sent, kept = modelled()
    assert sorted(brokers.output) == sorted(sent)
    for place in PARTITIONS:
        stored = brokers.stored(place.partition)
        assert {key: int(value) for key, value in stored.values.items()} == kept[place.partition]
        assert stored.position.offset == RECORDS


def make_timestamps(brokers, rng):
    for place in PARTITIONS:
        now = 0
        for offset in range(RECORDS):
            now += rng.choice((0, 1, 50, 200, 700))
            # Records also arrive late, by more than the time after which values are over.
            late = rng.choice((0, 0, 300, 2 * TTL_MS))
            brokers.timestamps[place.partition * 1000 + offset] = max(0, now - late)


@pytest.mark.parametrize("transaction_bytes", [2**20, 300])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_a_value_is_over_at_the_same_record(monkeypatch, seed, transaction_bytes):
    rng = random.Random(f"expiry {seed}")
    metadata_bytes = rng.choice((0, 60, 4096))
    brokers = model_brokers(monkeypatch, rng, metadata_bytes, transaction_bytes)
    make_timestamps(brokers, rng)
    ttl = timedelta(milliseconds=TTL_MS)
    assert asyncio.run(worked(brokers, rng, lanes=(1, 4, 7), state_ttl=ttl)) == []
    sent, kept = modelled(brokers.timestamps)
    assert sorted(brokers.output) == sorted(sent)
    for place in PARTITIONS:
        stored = brokers.stored(place.partition)
        assert {key: int(value) for key, value in stored.values.items()} == kept[place.partition]
        assert stored.position.offset == RECORDS


def is_bad_timer(time_ms):
    return time_ms % 13 == 5


def times_set(value, timestamp):
    """The timers that a record sets: some in the past; ``None``: it deletes all of its key."""
    if value % 9 == 4:
        return None
    return [timestamp + delta for delta in ((), (250,), (-300, 600), (900, 901))[value % 4]]


def next_time(time_ms):
    """The timer that a timer sets; 0: none."""
    return time_ms + 333 if time_ms % 3 == 0 else 0


def at(time_ms):
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms)


def milliseconds(time):
    return (time - at(0)) // timedelta(milliseconds=1)


def timing(rng):
    class Timing(WorkerTask):
        async def process(self, record):
            await asyncio.sleep(rng.choice((0, 0, 0.001, 0.01)))
            times = times_set(int(record.value), record.timestamp_ms)
            if times is None:
                self.timers.clear()
            for time in times or ():
                self.timers.set(at(time))
            self.change(int(record.value), record.attempt)
            if is_bad(int(record.value)):
                raise ConnectionError("no answer")

        async def on_timer(self, timer):
            time = milliseconds(timer.time)
            await asyncio.sleep(rng.choice((0, 0, 0.001, 0.01)))
            if next_time(time):
                self.timers.set(at(next_time(time)))
            self.change(time + TIMER, attempt=1)
            if is_bad_timer(time):
                raise ConnectionError("no answer")

        def change(self, value, attempt):
            count = self.state.get(0) + 1
            self.state.set(count)
            self.send("out", b"%d" % (value * 100 + count))
            if rng.random() < 0.2 and attempt < 10:
                raise ConnectionError("no answer")

    return Timing


class TimedKey:
    """What a key has, in a model."""

    def __init__(self):
        self.count, self.set_at, self.times = 0, 0, set()

    def change(self, value, now):
        if self.count and now >= self.set_at + TTL_MS:
            self.count = 0
        self.count, self.set_at = self.count + 1, now
        return value * 100 + self.count

    def fire(self, now):
        """Yields what timers send until ``now``, in their order."""
        while self.times and min(self.times) <= now:
            time = min(self.times)
            self.times.discard(time)
            if is_bad_timer(time):
                continue
            if next_time(time):
                self.times.add(next_time(time))
            yield self.change(time + TIMER, time)


def modelled_timers(timestamps):
    """What is sent, and what is kept, of each partition and key."""
    sent, kept = [], []
    for place in PARTITIONS:
        keys, now = defaultdict(TimedKey), 0
        for offset in range(RECORDS):
            value = place.partition * 1000 + offset
            now = max(now, timestamps[value])
            key = keys[b"%d" % (value % KEYS)]
            for other in keys.values():
                sent += other.fire(now)
            if not is_bad(value):
                times = times_set(value, timestamps[value])
                if times is None:
                    key.times.clear()
                key.times |= {max(now, time) for time in times or ()}
                sent.append(key.change(value, now))
        for key in keys.values():
            sent += key.fire(now)
        kept.append((keys, now))
    return sent, kept


@pytest.mark.parametrize("transaction_bytes", [2**20, 300])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_each_timer_is_called_once_in_the_order_of_its_key(
    monkeypatch, seed, transaction_bytes
):
    rng = random.Random(f"timers {seed}")
    metadata_bytes = rng.choice((0, 60, 4096))
    brokers = model_brokers(monkeypatch, rng, metadata_bytes, transaction_bytes)
    make_timestamps(brokers, rng)
    declared = {"state_ttl": timedelta(milliseconds=TTL_MS), "queue_bytes": rng.choice((1, 2**20))}
    lanes = (1, 4, 7)
    assert asyncio.run(worked(brokers, rng, lanes, task=timing(rng), **declared)) == []
    sent, kept = modelled_timers(brokers.timestamps)
    assert sorted(brokers.output) == sorted(sent)
    assert sum(value >= TIMER * 100 for value in sent) > RECORDS / 4
    for place in PARTITIONS:
        stored, (keys, now) = brokers.stored(place.partition), kept[place.partition]
        live = {name: key for name, key in keys.items() if now < key.set_at + TTL_MS}
        assert {name: int(value) for name, value in stored.values.items()} == {
            name: key.count for name, key in live.items() if key.count
        }
        assert {name: decoded_times(times) for name, times in stored.timers.items()} == {
            name: tuple(sorted(key.times)) for name, key in keys.items() if key.times
        }
        assert stored.position.offset == RECORDS
