"""Who works on records, and what each of them needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.driver import WriteOnce
from bench.peers import kafka_workers
from bench.peers.java_program import Program
from bench.peers.record import python_programs
from bench.peers.record.job import SEND, WORK_US, Job
from bench.setup import Setup
from headrace.runtime.java.installation import Java

OpenJob = Callable[..., WriteOnce]
"""As :data:`bench.driver.Open`, given ``job=`` too."""

KAFKA_WORKERS = {"worker.sleep.ms": "1"}


@dataclass(frozen=True)
class System:
    """One way to work on records.

    Attributes:
        prepare: gets what it needs; what it gives starts the system. Raises PeerMissingError or
            JarError where something can't be had.
        has_lanes: it can have more records in work than there are partitions.
        settings: what is not its default.
        guarantee: of delivery, with these settings.
    """

    prepare: Callable[[Java], OpenJob]
    has_lanes: bool
    settings: Mapping[str, str]
    guarantee: str = "at least once"


def _quix_streams(_: Java) -> OpenJob:
    return partial(python_programs.open_quix_streams, python=python_programs.quix_python())


def _kafka_workers(java: Java) -> OpenJob:
    return partial(_open_kafka_workers, program=kafka_workers.prepare(java))


def _open_kafka_workers(setup: Setup, *, program: Program, job: Job) -> WriteOnce:
    task = partial(record_task, job=job)
    return kafka_workers.open_kafka_workers(setup, program=program, task=task)


def record_task(_: Setup, __: Path, *, job: Job) -> dict[str, str]:
    """Settings of Kafka Workers and of its task."""
    lanes = {"worker.task.lanes": str(job.subpartitions)}
    if job.kind == SEND:
        task = {"name": "send", "out": job.out, "bootstrap": job.bootstrap}
    else:
        task = {"name": "record", "work": job.kind, "work.us": str(WORK_US[job.kind])}
    return KAFKA_WORKERS | lanes | {f"worker.task.{name}": value for name, value in task.items()}


_ONE_A_PARTITION = {"processes": "one a partition"}
SYSTEMS = {
    "headrace-workers": System(lambda _: python_programs.open_headrace, True, {}),
    "headrace-workers-2": System(
        lambda _: partial(python_programs.open_headrace, processes=2), True, {"processes": "2"}
    ),
    "kafka-workers": System(_kafka_workers, True, kafka_workers.SETTINGS | KAFKA_WORKERS),
    "plain-loop": System(lambda _: python_programs.open_plain_loop, False, _ONE_A_PARTITION),
    "quix-streams": System(_quix_streams, False, _ONE_A_PARTITION),
}


def _open_exactly_once(setup: Setup, *, start: OpenJob, job: Job) -> WriteOnce:
    return start(setup, job=replace(job, is_exactly_once=True))


def _exactly_once(name: str, **settings: str) -> System:
    """One of :data:`SYSTEMS` that sends and commits in transactions."""
    system = SYSTEMS[name]

    def prepare(java: Java) -> OpenJob:
        return partial(_open_exactly_once, start=system.prepare(java))

    own = {**system.settings, **settings}
    return replace(system, prepare=prepare, settings=own, guarantee="exactly once")


SENDING = SYSTEMS | {
    "headrace-workers-once": _exactly_once("headrace-workers", guarantee="Guarantee.EXACTLY_ONCE"),
    "quix-streams-once": _exactly_once("quix-streams", processing_guarantee="exactly-once"),
}
"""Those that also send."""
