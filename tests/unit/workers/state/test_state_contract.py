"""The contract of workers with a state on a bench: no Kafka."""

import msgspec
import pytest
from tests.contracts.worker_state import StateContract

from headrace.model import Guarantee, Topic
from headrace.testing import WorkerBench
from headrace.workers import Worker


class BenchOfState:
    """As :class:`tests.contracts.worker_state.StateBench`."""

    output = "out"

    def __init__(self):
        self.bench = None

    def worker(self, task, **declared):
        declared = {"guarantee": Guarantee.EXACTLY_ONCE, "state": int} | declared
        return Worker("w", Topic("clicks"), task, **declared)

    def feed(self, worker, *records):
        self.bench = self.bench or WorkerBench(worker)
        for key, value in records:
            self.bench.feed(value, key=key)

    def values(self, worker):
        values = {key.decode(): value for key, value in self.bench.state.items()}
        return msgspec.to_builtins(values)

    def sent(self):
        return [(record.key.decode(), record.value.decode()) for record in self.bench.sent]

    def letters(self):
        return [(letter.offset, letter.reason) for letter in self.bench.dead_letters]


@pytest.fixture
def bench():
    bench = BenchOfState()
    yield bench
    bench.bench.close()


class TestStateOnABench(StateContract):
    """The contract, without Kafka."""
