"""What is planted in a run, while a part of the events is sent; and the run itself."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from bench.cluster import Placed, send
from bench.driver import SystemFailedError
from bench.iceberg_faults.answers import LosingProxy
from bench.iceberg_faults.catalog import Answer, Tally, await_, tally
from bench.iceberg_faults.system import PARTITIONS, System
from headrace.kafka.client.clients import client_config
from headrace.settings.model import KafkaSettings

RATE = 500
FIRST_RATE = 2_000
PLANTED = 3
"""Faults in a run; events are sent in one part more."""
FREEZE_SECONDS = 25
_COMMIT_SECONDS = 300.0
_MAX_DELAY_SECONDS = 8.0
_SETTLED_SECONDS = 10.0
_SILENT_SECONDS = 75.0
_LONGEST_SECONDS = 1800.0
_TAKE_OVER_SECONDS = 400.0
_TICK_EVENTS = 100


@dataclass(frozen=True)
class Outcome:
    """One run.

    Attributes:
        system: by name.
        fault: by name.
        seed: of the times of the faults.
        tally: what the table holds in the end.
        notes: what happened beside what was planted, and how often.
        seconds: how long it took.
    """

    system: str
    fault: str
    seed: int
    tally: Tally
    notes: Mapping[str, int]
    seconds: float


@dataclass
class Run:
    """One system, which copies a topic into a table.

    Args:
        system: not started.
        events: by id, in order.
        random: what chooses times.
        stack: of what is closed after the run.

    Attributes:
        sent: how many events the topic has.
    """

    system: System
    events: Mapping[str, bytes]
    random: random.Random
    stack: ExitStack
    sent: int = 0
    _places: Iterator[int] = field(default_factory=lambda: itertools.cycle(range(PARTITIONS)))

    @property
    def parts(self) -> Iterator[list[bytes]]:
        """The events, in one part more than there are faults."""
        values = list(self.events.values())
        bounds = [len(values) * number // (PLANTED + 1) for number in range(PLANTED + 2)]
        return (values[begin:end] for begin, end in itertools.pairwise(bounds))

    @contextmanager
    def sending(self, part: list[bytes], rate: int = RATE) -> Iterator[None]:
        """Sends a part of the events beside the block, so many a second."""
        place = self.system.place
        config = client_config(KafkaSettings(), place.broker.bootstrap)
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send, config, place.name, self._paced(part, rate), lambda _: None)
            try:
                yield
            finally:
                sending.result()
                self.sent += len(part)

    def _paced(self, part: list[bytes], rate: int) -> Iterator[Placed]:
        began = time.monotonic()
        for number, value in enumerate(part):
            if number % _TICK_EVENTS == 0:
                time.sleep(max(0.0, began + number / rate - time.monotonic()))
            yield next(self._places), None, value

    def wait(self, seconds: float) -> None:
        """Waits, while what ends by itself is started again."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.system.tend()
            time.sleep(min(1.0, left))

    def await_(self, condition: Callable[[], Answer | None], what: str) -> Answer:
        """Returns the first true answer, while what ends by itself is started again.

        Raises:
            SystemFailedError: if there is none in time.
        """

        def look() -> Answer | None:
            self.system.tend()
            return condition()

        return await_(look, _COMMIT_SECONDS, what)

    def settle(self) -> None:
        """Returns once the system has been at rest for a while: long, if the table lacks rows."""
        catalog, name = self.system.place.catalog, self.system.place.name
        deadline = time.monotonic() + _LONGEST_SECONDS
        changed, version, count = time.monotonic(), "", 0
        while time.monotonic() < deadline:
            if (now := catalog.version(name)) != version:
                version, count, changed = now, catalog.count(name), time.monotonic()
            if not self.system.has_read_all(self.sent):
                changed = time.monotonic()
            silence = _SETTLED_SECONDS if count == self.sent else _SILENT_SECONDS
            if time.monotonic() - changed > silence:
                return
            self.wait(1.0)
        raise SystemFailedError(f"{name} is not at rest after {_LONGEST_SECONDS:g} s")

    def count(self) -> int:
        """Returns how many rows the table has."""
        return self.system.place.catalog.count(self.system.place.name)

    def has_more_rows(self, before: int) -> bool:
        """Returns whether the table has more rows than before."""
        return self.count() > before

    def parts_at_work(self) -> Iterator[list[bytes]]:
        """Gives the second half of each part but the last one, which it sends itself.

        It sends the first half before, and waits until the table has more rows: the system is at
        work when something is planted.
        """
        *parts, last = self.parts
        for part in parts:
            half, before = len(part) // 2, self.count()
            with self.sending(part[:half], FIRST_RATE):
                self.await_(partial(self.has_more_rows, before), "more rows")
            yield part[half:]
        with self.sending(last, FIRST_RATE):
            self.wait(0)

    def await_take_over(self) -> None:
        """Returns once the table has more rows: another process is at work."""
        before, deadline = self.count(), time.monotonic() + _TAKE_OVER_SECONDS
        self.wait(FREEZE_SECONDS)
        while not self.has_more_rows(before) and time.monotonic() < deadline:
            self.wait(1.0)
        self.system.note("taken over" if self.has_more_rows(before) else "not taken over")

    def give_up(self, reason: str) -> None:
        """Plants no more faults, as the system no longer works; sends what is left."""
        self.system.note(reason)
        with self.sending(list(self.events.values())[self.sent :], FIRST_RATE):
            self.wait(0)

    def tally(self) -> Tally:
        """Returns what the table holds. Where it can't be read, no event has a row."""
        try:
            ids = self.system.place.catalog.ids(self.system.place.name)
        except FileNotFoundError:
            self.system.note("a file of the table's metadata is gone: it can't be read")
            ids = []
        return tally(self.events.keys(), ids)


def nothing(run: Run) -> None:
    """The events, and nothing else."""
    run.system.start(2)
    for part in run.parts:
        with run.sending(part, FIRST_RATE):
            run.wait(0)


def killed_at_commit(run: Run) -> None:
    """The process that commits is killed when the files are written.

    The commit waits in the catalog then. Whether it happens at all, just before its process is
    killed, is chosen by chance.
    """
    run.system.start(2)
    place = run.system.place
    for part in run.parts_at_work():
        with place.catalog.commits_held(place.name) as held, run.sending(part):
            backend, port = run.await_(held.waiting, "a commit")
            victim = run.system.owner(port)
            if run.random.random() < 0.5:
                victim.kill()
                held.drop(backend)
                run.system.note("killed before the commit")
            else:
                held.release()
                victim.kill()
                run.system.note("killed after the commit")


def killed_at_random(run: Run) -> None:
    """A process is killed at a random time while events come in."""
    run.system.start(2)
    for part in run.parts_at_work():
        with run.sending(part):
            run.wait(run.random.uniform(0, _MAX_DELAY_SECONDS))
            run.system.any_running(run.random).kill()
            run.system.note("killed")


def frozen(run: Run) -> None:
    """The process that commits is frozen until another one is at work, and then continues.

    Its commit waits in the catalog when it stops. The connection is cut, so that it is no commit
    yet: it is tried again when another process has committed the same rows.
    """
    run.system.start(2)
    place = run.system.place
    for part in run.parts_at_work():
        with run.sending(part):
            with place.catalog.commits_held(place.name) as held:
                backend, port = run.await_(held.waiting, "a commit")
                victim = run.system.owner(port)
                victim.freeze()
                held.drop(backend)
            run.system.note("frozen")
            run.system.take_over(victim)
            run.await_take_over()
            victim.thaw()
    run.wait(FREEZE_SECONDS)
    run.system.leave()


def answer_lost(run: Run) -> None:
    """A commit happens, and its answer is lost: the connection to the catalog is cut."""
    place = run.system.place
    proxy = run.stack.enter_context(LosingProxy(place.catalog.port))
    run.system.place = replace(place, port=proxy.port)
    run.system.start(2)
    for number, part in enumerate(run.parts_at_work()):
        proxy.lose_next()
        with run.sending(part):
            run.await_(partial(proxy.has_lost, number + 1), "a commit")
            run.system.note("answers lost")


def joined(run: Run) -> None:
    """A second process joins, leaves and joins while events come in."""
    system = run.system
    system.start(1)
    for number, part in enumerate(run.parts_at_work()):
        half = len(part) // 2
        with run.sending(part[:half]):
            run.wait(run.random.uniform(0, half / RATE))
            if number % 2:
                system.leave()
                system.note("left")
            else:
                system.join()
                run.await_(system.has_joined, "the second process")
                system.note("joined")
        with run.sending(part[half:]):
            run.wait(_MAX_DELAY_SECONDS)
    run.wait(_MAX_DELAY_SECONDS)
    system.leave()


def losing(state: str) -> Callable[[Run], None]:
    """What the system keeps outside of the table is lost between two runs."""

    def lost(run: Run) -> None:
        run.system.start(2)
        parts = list(run.parts)
        half = len(parts) // 2
        for part in parts[:half]:
            with run.sending(part, FIRST_RATE):
                run.wait(0)
        run.settle()
        run.system.stop()
        run.system.lose(state)
        run.system.start(2)
        for part in parts[half:]:
            with run.sending(part, FIRST_RATE):
                run.wait(_MAX_DELAY_SECONDS)

    return lost


FAULTS: Mapping[str, Callable[[Run], None]] = {
    "none": nothing,
    "killed-at-commit": killed_at_commit,
    "killed-at-random": killed_at_random,
    "frozen": frozen,
    "answer-lost": answer_lost,
    "second-process": joined,
}
