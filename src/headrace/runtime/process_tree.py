"""What a tree of processes used: CPU of all of it, also of children that have gone, and memory.

CPU is user and system time of ``/proc/<pid>/stat``, the waited-for children included, so a
worker that ended counts through its parent. A process that left the tree because its parent
ended stays known by its pid and start time.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

SAMPLE_SECONDS = 0.2
DISCOVER_EVERY = 5
"""Looking through the whole of ``/proc`` costs milliseconds: every so many samples only."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MB = 1e6
# Places in /proc/<pid>/stat after the state, see proc_pid_stat(5).
_PARENT, _CPU, _START, _RSS = 0, slice(10, 14), 18, 20


@dataclass(frozen=True, slots=True)
class Process:
    """One process at one moment. ``started`` tells two lives of a pid apart.

    Attributes:
        ended: it is a zombie: its parent has not asked for it yet.
        cpu_seconds: user and system time of it and of the children it waited for.
        rss_mb: resident memory in MB (10^6 bytes), pages shared with others included.
    """

    pid: int
    parent: int
    started: int
    name: str
    ended: bool
    cpu_seconds: float
    rss_mb: float

    @property
    def is_python(self) -> bool:
        """Whether it is a Python interpreter, by the name of its command."""
        return self.name.startswith("python")


def parse_stat(line: str) -> Process:
    """Reads one line of ``/proc/<pid>/stat``."""
    head, _, tail = line.rpartition(")")
    pid, _, name = head.partition(" (")
    state, *numbers = tail.split()
    values = [int(number) for number in numbers]
    return Process(
        pid=int(pid),
        parent=values[_PARENT],
        started=values[_START],
        name=name,
        ended=state in "ZX",
        cpu_seconds=sum(values[_CPU]) / _TICKS_PER_SECOND,
        rss_mb=values[_RSS] * _PAGE_BYTES / _MB,
    )


def processes(pids: Iterable[int] | None = None) -> dict[int, Process]:
    """Returns all processes of the machine by pid, or those of ``pids`` that are there."""
    if pids is None:
        pids = (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit())
    looked_up = (_process(pid) for pid in pids)
    return {process.pid: process for process in looked_up if process is not None}


def _process(pid: int) -> Process | None:
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def tree(root: int, machine: Mapping[int, Process], known: Iterable[Process] = ()) -> list[Process]:
    """Returns ``root`` and its descendants, and what else descends from a ``known`` process."""
    still_there = [
        now.pid
        for before in known
        if (now := machine.get(before.pid)) and now.started == before.started
    ]
    children: dict[int, list[int]] = {}
    for process in machine.values():
        children.setdefault(process.parent, []).append(process.pid)
    members: dict[int, Process] = {}
    waiting = [root, *still_there]
    while waiting:
        pid = waiting.pop()
        if pid in machine and pid not in members:
            members[pid] = machine[pid]
            waiting += children.get(pid, [])
    return list(members.values())


@dataclass(frozen=True)
class Usage:
    """What a tree used between two moments.

    Attributes:
        cpu_seconds: user and system time of all its processes.
        peak_memory_mb: largest sum of their resident memory (shared pages counted each time).
        peak_worker_memory_mb: largest resident memory of one Python process below the root.
    """

    cpu_seconds: float
    peak_memory_mb: float
    peak_worker_memory_mb: float


def remembered(known: Iterable[Process], now: Iterable[Process]) -> list[Process]:
    """Returns what to add up: the tree as it is ``now``, and orphans that ended.

    A process that its parent waited for is in the parent's figure already, and so is one whose
    parent ended in the same way. One that ended as an orphan stays with its last figure.
    """
    alive = {process.pid: process for process in now}
    ended = {process.pid: process for process in known if process.pid not in alive}
    orphans = (process for process in ended.values() if not _counted(process, ended, alive))
    return [*alive.values(), *orphans]


def _counted(process: Process, ended: Mapping[int, Process], alive: Mapping[int, Process]) -> bool:
    parent = process.parent
    while parent in ended:
        parent = ended[parent].parent
    return parent in alive


class Watch:
    """Follows the tree of process ``root`` from ``with`` to its end, on a thread of its own.

    Without ``counts_root`` the root only looks at the others, and what it uses is left out.
    """

    def __init__(self, root: int, *, counts_root: bool = True) -> None:
        self._root = root
        self._left_out = frozenset() if counts_root else frozenset({root})
        self._known: list[Process] = []
        self._peak_mb = self._peak_worker_mb = 0.0
        self._most_cpu_seconds = 0.0
        self._end = threading.Event()
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._cpu_before = self._cpu_seconds()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._look()

    @property
    def usage(self) -> Usage:
        """Returns what was used from the beginning to the last look."""
        used = self._cpu_seconds() - self._cpu_before
        return Usage(used, self._peak_mb, self._peak_worker_mb)

    def cpu_seconds(self) -> float:
        """Returns the CPU that the tree has used from the beginning until now; it never falls."""
        self._look()
        # A child whose parent does not wait for it leaves with what it has used.
        self._most_cpu_seconds = max(self._most_cpu_seconds, self.usage.cpu_seconds)
        return self._most_cpu_seconds

    def _run(self) -> None:
        samples = itertools.count(1)
        while not self._end.wait(SAMPLE_SECONDS):
            if next(samples) % DISCOVER_EVERY == 0:
                self._look()
            else:
                self._note_memory(processes([process.pid for process in self._known]).values())

    def _look(self) -> None:
        with self._looking:
            members = tree(self._root, processes(), self._known)
            now = [member for member in members if member.pid not in self._left_out]
            self._note_memory(now)
            self._known = remembered(self._known, now)

    def _note_memory(self, now: Collection[Process]) -> None:
        self._peak_mb = max(self._peak_mb, sum(process.rss_mb for process in now))
        below = (process for process in now if process.pid != self._root)
        workers = [process.rss_mb for process in below if process.is_python]
        self._peak_worker_mb = max(self._peak_worker_mb, *workers, 0.0)

    def _cpu_seconds(self) -> float:
        return sum(process.cpu_seconds for process in self._known)
