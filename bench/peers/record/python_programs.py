"""Peers in Python: processes that start for a run, are told what to do, and end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.driver import OnCommit, SystemFailedError, WriteOnce
from bench.environment import python_of
from bench.peers.programs import BUILT, PeerMissingError, check_running, end, started
from bench.peers.progress import follow_group
from bench.peers.record.job import Job, argument
from bench.setup import Setup

HERE = Path(__file__).resolve().parent
QUIX_LOCK = HERE / "quix.requirements.txt"


@dataclass(frozen=True)
class Programs:
    """So many processes of one command, for each run.

    Attributes:
        prefix: of the consumer group.
    """

    command: Sequence[str]
    count: int
    prefix: str = ""

    def run(self, setup: Setup, job: Job, out: Path, on_commit: OnCommit) -> None:
        """From their start until the whole topic is committed."""
        command = [*self.command, argument(job, out.name)]
        with running_programs(command, self.count) as check:
            follow_group(setup, self.prefix + out.name, on_commit, check)


@contextmanager
def running_programs(command: Sequence[str], count: int) -> Iterator[Callable[[], None]]:
    """So many processes of one command, ended with the block; what raises when one has ended."""
    running = [started(command) for _ in range(count)]

    def check() -> None:
        for program in running:
            check_running(program)

    try:
        yield check
    finally:
        for program in running:
            end(program)


def open_headrace(setup: Setup, *, job: Job, processes: int = 1) -> WriteOnce:
    """So many instances, as ``headrace workers run --processes`` starts them."""
    programs = Programs(_module("headrace_workers"), processes, "headrace.")
    return partial(programs.run, setup, job)


def open_plain_loop(setup: Setup, *, job: Job) -> WriteOnce:
    """A process a partition."""
    return partial(Programs(_module("plain_loop"), setup.partitions).run, setup, job)


def open_quix_streams(setup: Setup, *, python: Path, job: Job) -> WriteOnce:
    """A process a partition."""
    command = [str(python), str(HERE / "quix_loop.py")]
    return partial(Programs(command, setup.partitions).run, setup, job)


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", f"{__package__}.{name}"]


def quix_python() -> Path:
    """The interpreter of an environment with Quix Streams, made when there is none.

    Raises:
        PeerMissingError: it could not be installed.
    """
    try:
        return python_of(BUILT / "quix", QUIX_LOCK, "--require-hashes")
    except SystemFailedError as error:
        raise PeerMissingError(str(error)) from error


def quix_version() -> str:
    """As locked."""
    return next(
        line.split()[0].partition("==")[2]
        for line in QUIX_LOCK.read_text().splitlines()
        if line.startswith("quixstreams==")
    )
