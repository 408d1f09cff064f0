"""What every worker with a state does: on a ``WorkerBench``, and on Kafka itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import pytest

from headrace.errors import ProcessingFailedError
from headrace.workers import DeadLetters, KeyState, Retry, Skip, Worker, WorkerRecord, WorkerTask
from headrace.workers.tasks.function_task import FunctionFactory

Fed = tuple[str | None, str]
"""Key and value of a record."""
MANY = [("ann" if number % 3 else "bob", "") for number in range(30)]


@dataclass
class Visits:
    count: int
    pages: list[str]


class StateBench(Protocol):
    """A topic of one partition, a worker that reads it, and what becomes of both."""

    output: str
    """The topic that tasks send to."""

    def worker(self, task: Any, **declared: Any) -> Worker:
        """A worker that is exactly once, with a state of type ``int`` unless one is declared."""

    def feed(self, worker: Worker, *records: Fed) -> None:
        """Returns when all are done. With each call, another instance may process them.

        Raises:
            HeadraceError: if the instance ends.
        """

    def values(self, worker: Worker) -> Mapping[str, Any]:
        """By key, the state of records that are done."""

    def sent(self) -> list[Fed]:
        """What the output has."""

    def letters(self) -> list[tuple[int, str]]:
        """Offset and reason of each dead letter."""


def counting(bench, fails=lambda record: False):
    """Counts the records of each key, and sends each count; what fails does so after that."""

    class Counting(WorkerTask):
        async def process(self, record):
            count = self.state.get(0) + 1
            self.state.set(count)
            self.send(bench.output, b"%d" % count, key=record.key)
            if fails(record):
                raise ConnectionError("no answer")

    return Counting


def is_bad(record):
    return record.value == b"bad"


class StateContract:
    """Give it a fixture ``bench``, a :class:`StateBench`."""

    def test_a_record_sees_what_the_one_before_it_left_of_its_key_alone(self, bench):
        counter = bench.worker(counting(bench))
        bench.feed(counter, *MANY[:17])
        bench.feed(counter, *MANY[17:])
        assert bench.values(counter) == {"ann": 20, "bob": 10}
        for key, count in bench.values(counter).items():
            counts = [int(value) for name, value in bench.sent() if name == key]
            assert counts == list(range(1, count + 1))

    def test_a_value_that_was_got_is_a_copy(self, bench):
        seen = []

        class Looking(WorkerTask):
            async def process(self, record):
                visits = self.state.get(Visits(0, []))
                seen.append(list(visits.pages))
                visits.pages.append("not kept")
                if record.value == b"set":
                    self.state.set(Visits(visits.count + 1, ["/"]))

        worker = bench.worker(Looking, state=Visits)
        bench.feed(worker, ("ann", ""), ("ann", "set"), ("ann", ""), ("ann", ""))
        assert seen == [[], [], ["/"], ["/"]]
        assert bench.values(worker) == {"ann": {"count": 1, "pages": ["/"]}}

    def test_a_function_takes_the_state_of_its_records_key(self, bench):
        def visit(record: WorkerRecord, state: KeyState[int]) -> None:
            state.set(state.get(0) + len(record.value))

        worker = bench.worker(FunctionFactory(visit, has_state=True))
        bench.feed(worker, ("ann", "12"), ("bob", "1"), ("ann", "123"))
        assert bench.values(worker) == {"ann": 5, "bob": 1}

    def test_a_key_whose_value_was_deleted_has_none(self, bench):
        seen = []

        class Deleting(WorkerTask):
            async def process(self, record):
                seen.append(self.state.get())
                if record.value == b"delete":
                    self.state.delete()
                else:
                    self.state.set(int(record.value))

        worker = bench.worker(Deleting)
        bench.feed(worker, ("ann", "delete"), ("ann", "1"), ("bob", "2"), ("ann", "delete"))
        assert bench.values(worker) == {"bob": 2}
        bench.feed(worker, ("ann", "3"), ("bob", "delete"))
        assert bench.values(worker) == {"ann": 3}
        assert seen == [None, None, None, 1, None, 2]

    def test_a_retry_sees_the_state_as_it_was_before_the_attempt_that_failed(self, bench):
        policy = Retry(attempts=3, first_delay=timedelta(0), then=DeadLetters())
        task = counting(bench, lambda record: is_bad(record) and record.attempt < 3)
        counter = bench.worker(task, on_failure=policy)
        bench.feed(counter, ("ann", ""), ("ann", "bad"), ("ann", ""))
        assert bench.sent() == [("ann", "1"), ("ann", "2"), ("ann", "3")]
        assert bench.values(counter) == {"ann": 3}
        assert bench.letters() == []

    @pytest.mark.parametrize(
        ("policy", "letters"),
        [
            (DeadLetters(), [(1, "processing-failed")]),
            (Skip(), []),
            (
                Retry(attempts=2, first_delay=timedelta(0), then=DeadLetters()),
                [(1, "processing-failed")],
            ),
        ],
        ids=["dead letters", "skip", "retry"],
    )
    def test_a_record_that_was_not_processed_changes_nothing(self, bench, policy, letters):
        counter = bench.worker(counting(bench, is_bad), on_failure=policy)
        bench.feed(counter, ("ann", ""), ("ann", "bad"), ("bob", ""), ("ann", ""))
        assert bench.values(counter) == {"ann": 2, "bob": 1}
        assert sorted(bench.sent()) == [("ann", "1"), ("ann", "2"), ("bob", "1")]
        assert bench.letters() == letters

    def test_a_record_without_a_key_has_no_state_and_holds_up_no_other(self, bench):
        counter = bench.worker(counting(bench), on_failure=DeadLetters())
        bench.feed(counter, ("ann", ""), (None, ""), ("ann", ""))
        assert bench.values(counter) == {"ann": 2}
        assert bench.letters() == [(1, "no-key")]

    def test_a_value_of_another_type_fails_its_record_and_is_not_kept(self, bench):
        class Wrong(WorkerTask):
            async def process(self, record):
                self.state.set(1)
                if is_bad(record):
                    self.state.set("two")

        worker = bench.worker(Wrong, on_failure=DeadLetters())
        bench.feed(worker, ("ann", ""), ("bob", "bad"))
        assert bench.values(worker) == {"ann": 1}
        assert bench.letters() == [(1, "processing-failed")]

    def test_a_failure_that_ends_the_instance_changes_nothing(self, bench):
        counter = bench.worker(counting(bench, is_bad))
        bench.feed(counter, ("ann", ""))
        with pytest.raises(ProcessingFailedError, match="ConnectionError: no answer"):
            bench.feed(counter, ("ann", "bad"))
        assert bench.values(counter) == {"ann": 1}
        assert bench.sent() == [("ann", "1")]
