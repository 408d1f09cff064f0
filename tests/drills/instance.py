"""One instance as a process: ``python -m tests.drills.instance SPEC.json``, ended with SIGTERM.

What its tasks do it appends to a file, a line each, before the record counts as done. A record
misbehaves as the end of its id says, see :data:`DEEDS`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import time
import zlib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TextIO

from tests.drills.checker import id_of

from headrace.errors import HeadraceError
from headrace.kafka.group.subscription import Membership
from headrace.model import DeadLetterLimit, Guarantee, Topic
from headrace.workers import (
    DeadLetters,
    InvalidRecordError,
    KeyHash,
    Retry,
    RetryTopics,
    Worker,
    WorkerInstance,
    WorkerTask,
)
from headrace.workers import instance as workers
from headrace.workers.consumer_group.restoring import StateRestores

FOREVER_SECONDS = 3600.0
VERSION = "7"
WATCH_SECONDS = 0.1
RELEASED = asyncio.Event()
"""SIGUSR1 sets it: records whose ids say that they are slow are done."""


@dataclass(frozen=True)
class Spec:
    """What to run.

    Attributes:
        client: librdkafka's configuration.
        worker: its name, so also the group's.
        file: what happens is written there.
        retry_topics: what failed waits there, not in its lane.
        observed: tasks use the observer, so that many records of a lane are in process.
        exactly_once: tasks also send each record to :attr:`output`, before anything else; attempts
            that fail have sent it, too.
        has_state: tasks count the records of each key in a state, and send the count with each, in
            the header ``count``.
        notes_records: each record that is done has a line. Without, only restores have.
        work_seconds: that each record takes.
    """

    client: dict[str, str]
    topic: str
    worker: str
    file: str
    instance_id: str = ""
    protocol: str = "classic"
    session_seconds: float = 6.0
    lanes: int = 4
    observed: bool = False
    retry_topics: bool = False
    exactly_once: bool = False
    has_state: bool = False
    notes_records: bool = True
    work_seconds: float = 0.002
    timeout_seconds: float = 60.0
    queue_bytes: int = 16 * 1024 * 1024
    commit_seconds: float = 0.2

    @property
    def output(self) -> str:
        """The topic that tasks send to."""
        return f"{self.topic}-out"


class Notes:
    """Lines of one process, for :mod:`tests.drills.processes`."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, what: str, *facts: object) -> None:
        self._file.write("\t".join(map(str, (what, *facts, time.monotonic_ns()))) + "\n")


class Noting(WorkerTask):
    """Does what records say, and writes it down."""

    def __init__(self, notes: Notes, spec: Spec) -> None:
        self.notes, self.spec = notes, spec

    async def init(self, subpartition, config) -> None:
        self.lane = subpartition.index
        self.partition = subpartition.partition
        self.is_of_topic = subpartition.topic == self.spec.topic  # not of a retry topic
        if self.is_of_topic:
            self.notes.write("open", self.partition, self.lane)

    async def process(self, record) -> None:
        if self.spec.has_state:
            self.state.set(self.state.get(0) + 1)
            headers = (("count", b"%d" % self.state.get(0)),)
            await self.send(self.spec.output, record.value, key=record.key, headers=headers)
        elif self.spec.exactly_once:
            await self.send(self.spec.output, record.value, key=record.key)
        await self.misbehave(record)
        await asyncio.sleep(self.spec.work_seconds)
        if self.spec.notes_records:
            self.note(record)

    async def misbehave(self, record) -> None:
        name = id_of(record.value)
        _, _, deed = name.partition(".")
        if deed:
            self.notes.write("begin", record.partition, record.offset, name)
            await DEEDS[deed](self.spec)

    def note(self, record) -> None:
        self.notes.write(
            "done",
            record.partition,
            record.offset,
            id_of(record.value),
            record.attempt,
            self.lane,
            zlib.crc32(record.value),
        )

    async def close(self) -> None:
        if self.is_of_topic:
            self.notes.write("close", self.partition, self.lane)


class Observing(Noting):
    """The same, and tells an observer, or not."""

    async def process(self, record, observer) -> None:
        if self.spec.exactly_once:
            await self.send(self.spec.output, record.value, key=record.key)
        name = id_of(record.value)
        if name.endswith(".silent"):
            self.silent = observer
        elif name.endswith(".told"):
            observer.on_failure(ConnectionError("told"))
        else:
            await self.misbehave(record)
            self.note(record)
            observer.on_success()


def noted(restores: type[StateRestores], notes: Notes) -> type[StateRestores]:
    """Returns restores that write down how many keys a partition has, and after how long."""

    class Noted(restores):
        async def _restore(self, assigned, start) -> None:
            began = time.monotonic()
            await super()._restore(assigned, start)
            if assigned.state is not None and self._is_here(assigned):
                keys, seconds = len(assigned.state.values), time.monotonic() - began
                notes.write("restored", assigned.partition.partition, keys, f"{seconds:.3f}")

    return Noted


async def _fail(spec: Spec) -> None:
    raise ConnectionError("away")


async def _refuse(spec: Spec) -> None:
    raise InvalidRecordError("unknown-campaign", "number 7")


async def _hang(spec: Spec) -> None:
    await asyncio.sleep(FOREVER_SECONDS)


async def _be_slow(spec: Spec) -> None:
    await RELEASED.wait()


DEEDS = {"fail": _fail, "bad": _refuse, "hang": _hang, "slow": _be_slow}
"""Further ones, of tasks that observe: ``silent`` and ``told``."""


def worker(spec: Spec, notes: Notes) -> Worker:
    task = Observing if spec.observed else Noting
    letters = DeadLetters(DeadLetterLimit(max_ratio=1.0))
    retry = Retry(attempts=2, first_delay=timedelta(milliseconds=20), then=letters)
    retry_later = RetryTopics((timedelta(milliseconds=200),), letters)
    return Worker(
        spec.worker,
        Topic(spec.topic),
        lambda: task(notes, spec),
        partitioner=KeyHash(spec.lanes),
        on_failure=retry_later if spec.retry_topics else retry,
        processing_timeout=timedelta(seconds=spec.timeout_seconds),
        commit_every=timedelta(seconds=spec.commit_seconds),
        queue_bytes=spec.queue_bytes,
        version=VERSION,
        guarantee=Guarantee.EXACTLY_ONCE if spec.exactly_once else Guarantee.AT_LEAST_ONCE,
        state=int if spec.has_state else None,
    )


async def run(spec: Spec, notes: Notes) -> None:
    declared = worker(spec, notes)
    workers.StateRestores = noted(StateRestores, notes)
    membership = Membership(
        declared.consumer_group,
        (spec.topic,),
        instance_id=spec.instance_id,
        protocol=spec.protocol,
        session_seconds=spec.session_seconds,
    )
    instance = WorkerInstance(declared, spec.client, membership=membership)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, instance.stop)
    loop.add_signal_handler(signal.SIGUSR1, RELEASED.set)
    watching = asyncio.create_task(watch(instance, notes))
    try:
        await instance.run()
    finally:
        watching.cancel()


async def watch(instance: WorkerInstance, notes: Notes) -> None:
    """What it holds, now and then."""
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        if instance._running is not None:
            notes.write("holds", instance._running.assignments.budget.used)


def main(path: str) -> int:
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("headrace.kafka").setLevel(logging.INFO)
    spec = Spec(**json.loads(Path(path).read_text()))
    with Path(spec.file).open("a", buffering=1) as file:
        try:
            asyncio.run(run(spec, Notes(file)))
        except HeadraceError as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
