"""Random histories of drivers that claim, renew, freeze, die and hand over: one of them writes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SinkError
from headrace.pipelines.standby.drivers import TIMING
from headrace.service.leases import Claim, OwnLease
from headrace.sinks.api import Transaction

STEP_MS = 50


class Sink:
    """Takes a batch if it follows what is recorded, as every sink with positions does."""

    def __init__(self):
        self.recorded = {"position": 0}
        self.batches = []

    def commit(self, start, end, driver):
        transaction = Transaction({"position": end}, {"position": start})
        if transaction.follows(self.recorded, "sink"):
            self.recorded = dict(transaction.versions)
            self.batches.append((start, end, driver))


@dataclass
class Topic:
    """The topic of leases: what is on its way, and what is there, with the broker's time."""

    records: list = field(default_factory=list)
    sent: list = field(default_factory=list)

    def send(self, claim, arrives_ms):
        self.sent.append((arrives_ms, claim))

    def arrive(self, now_ms):
        for record in sorted((r for r in self.sent if r[0] <= now_ms), key=lambda r: r[0]):
            self.sent.remove(record)
            self.records.append((record[1], now_ms))


class Driver:
    """A driver as its parts act on its lease, on a clock that begins anywhere and drifts."""

    def __init__(self, name, chance, topic, sink):
        self.name, self._chance, self._topic, self._sink = name, chance, topic, sink
        self._origin, self._rate = chance.uniform(0, 1e6), chance.uniform(0.99, 1.01)
        self._lease = OwnLease(name, 1, TIMING)
        self._read, self._sent_at = 0, 0.0
        self._term = self._position = self._writing = None
        self._rests_until = 0.0
        self.frozen_until = self.deaf_until = 0
        self.is_dead = False

    def clock(self, now_ms):
        return self._origin + now_ms * self._rate / 1000

    def has_slot(self, now_ms):
        now = self.clock(now_ms)
        has_lease = not self.is_dead and now >= self._rests_until
        return has_lease and self._lease.slot(now) is not None

    def act(self, now_ms):
        if self.is_dead or now_ms < self.frozen_until:
            return
        self._end_batch()
        if now_ms >= self.deaf_until:
            self._renew(now_ms)
        self._run(now_ms)

    def die(self):
        self.is_dead = True

    def end(self, now_ms):
        """SIGTERM: it releases its lease after its batch, and ends."""
        if self.hand_over(now_ms):
            self.is_dead = True

    def hand_over(self, now_ms):
        """A request: it releases its lease after its batch, and claims it no more for a while."""
        if not self.has_slot(now_ms) or self._writing is not None or now_ms < self.frozen_until:
            return False
        self._topic.send(Claim(self.name, "host", is_release=True), now_ms)
        self._term, self._rests_until = None, self.clock(now_ms) + TIMING.rest_seconds
        return True

    def _renew(self, now_ms):
        now = self.clock(now_ms)
        for claim, time_ms in self._topic.records[self._read :]:
            self._lease.take(0, claim, time_ms, now)
        self._read, self._lease.at_end = len(self._topic.records), True
        is_due = now - self._sent_at >= TIMING.renew_seconds and now >= self._rests_until
        if is_due and (self._lease.own is not None or self._lease.table.free(now)):
            self._sent_at = now
            arrives = now_ms + self._chance.choice([0, 10, 100, 1_000, TIMING.lease_ms])
            self._topic.send(Claim(self.name, "host", sent_ms=int(now * 1000)), arrives)

    def _run(self, now_ms):
        """Starts, or begins a batch: what is between the look at the lease and the commit."""
        if self._term is not None and self._lease.has_lost(self._term):
            self._term = None
        if not self.has_slot(now_ms):
            return
        if self._term is None:
            self._term, self._position = self._lease.term, self._sink.recorded["position"]
        self._writing = self._position, self._position + self._chance.randint(1, 5)
        if self._chance.random() < 0.7:
            self._end_batch()

    def _end_batch(self):
        if self._writing is not None:
            start, end = self._writing
            self._writing = None
            try:
                self._sink.commit(start, end, self.name)
                self._position = end
            except SinkError:
                self._term = None  # it starts again where the sink stands, if it has the lease


def history(seed):
    """Returns the drivers that wrote, after a minute of faults and ten seconds without any."""
    chance = random.Random(seed)
    topic, sink = Topic(), Sink()
    drivers = [Driver(f"d{n}", chance, topic, sink) for n in range(3)]
    for now_ms in range(0, 70_000, STEP_MS):
        topic.arrive(now_ms)
        if now_ms < 60_000 and chance.random() < 0.02:
            driver = chance.choice(drivers)
            match chance.choice(["freeze", "deaf", "die", "end", "hand over"]):
                case "freeze":
                    driver.frozen_until = now_ms + chance.choice([500, 2_000, 4_000, 10_000])
                case "deaf":
                    driver.deaf_until = now_ms + chance.choice([500, 2_000, 4_000])
                case "die":
                    driver.die()
                case "end":
                    driver.end(now_ms)
                case _:
                    driver.hand_over(now_ms)
            if driver.is_dead:
                drivers.remove(driver)
                name = f"after {now_ms}"
                drivers.append(Driver(name, chance, topic, sink))
        chance.shuffle(drivers)
        for driver in drivers:
            driver.act(now_ms)
        # Also one that is frozen: if it woke up now, it must know that it has no lease.
        assert sum(driver.has_slot(now_ms) for driver in drivers) <= 1
    return sink.batches


@given(st.integers(0, 2**32))
@settings(max_examples=30)
def test_at_most_one_driver_has_the_lease_and_no_position_is_written_twice_or_left_out(seed):
    batches = history(seed)
    position = 0
    for start, end, _ in batches:
        assert start == position
        position = end


def test_histories_have_takeovers_and_continue_after_the_faults():
    histories = [history(seed) for seed in range(20)]
    assert all(len(batches) > 100 for batches in histories)
    takeovers = [len({name for _, _, name in batches}) - 1 for batches in histories]
    assert sum(takeovers) > len(histories)
