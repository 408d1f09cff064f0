"""The status of a loader that follows a folder of offline files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headrace.service.figures import counter, gauge
from headrace.service.status import InstanceStatus, State


@dataclass(frozen=True)
class LoaderStatus(InstanceStatus):
    """The figures of a loader since its start; its name is that of the source."""

    loaded: int = counter(
        "lines",
        "lines that were loaded",
        "standing still with `files_waiting` above 1: see the state and its reason",
    )
    dead_letters: int = counter(
        "lines",
        "lines that became dead letters",
        "rising: `headrace dead-letters list`, or table `headrace_dead_letters`, has the reasons",
    )
    skipped: int = counter(
        "lines",
        "lines that were done before, in a file that was read again",
        "as many as the files have after a start; rising later: files are written to after they "
        "were loaded, so a longer `--complete-after`",
    )
    backwards: int = counter(
        "lines",
        "lines whose counter is lower than that of a line before",
        "rising: the files are not in the order of their creation; try the other `--order`",
    )
    retries: int = counter(
        "retries",
        "times that a batch was tried again because the destination did not answer",
        "rising: the destination is unreachable or overloaded; `reason` and the log say why",
    )
    files: int = counter(
        "files",
        "files that were loaded to their end; one that is written to afterwards counts again",
        "standing still with `files_waiting` above 1: see the state and its reason",
    )
    files_waiting: int = gauge(
        "files",
        "files that are not loaded to their end, with the one that is being written",
        "rising: more is written than is loaded, or the loader waits as its `reason` says",
    )
    lag_seconds: float = gauge(
        "s",
        "how long the oldest of them waits: since its last write, or since it was first seen",
        "above the time in which files are rotated: see the state and its reason",
        default=0.0,
    )
    missing_counters: int = gauge(
        "counters",
        "counters between the first and the last that were never seen",
        "above 0 for long: lines were lost at the source, or a file is missing",
    )

    kind: ClassVar[str] = "loader"
    folder: ClassVar[str] = "loaders"
    states: ClassVar = (State.RUNNING, State.WAITING, State.STOPPED, State.FAILED)
