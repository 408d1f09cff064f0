"""What is done for each record. Nothing of headrace: peers' own environments import it too."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

WORK_US = {"call": 5_000, "cpu": 1_000}
"""``call`` waits for an answer, ``cpu`` keeps a processor busy."""
SEND = "send"
"""Work that takes no time of its own: the record is written to another topic."""
COMMIT_SECONDS = 0.25
"""Often, so that commits are seen soon; they are a few offsets."""


@dataclass(frozen=True)
class Job:
    """One topic, read by one consumer group, with work for each record.

    Attributes:
        kind: of :data:`WORK_US`, or :data:`SEND`.
        subpartitions: of each partition, where a system has them.
        threads: or processes, that work, where a system can choose.
        group: of the consumers.
        out: the topic that records are sent to.
        is_exactly_once: what is sent and the offsets are in one transaction.
    """

    bootstrap: str
    topic: str
    kind: str
    subpartitions: int
    threads: int
    group: str = ""
    out: str = ""
    is_exactly_once: bool = False

    @property
    def work_seconds(self) -> float:
        """Of each record."""
        return WORK_US[self.kind] / 1e6

    @property
    def work(self) -> Callable[[], None]:
        """Does it, blocking."""
        return self._burn if self.kind == "cpu" else self._wait

    def _wait(self) -> None:
        time.sleep(self.work_seconds)

    def _burn(self) -> None:
        until = time.thread_time() + self.work_seconds
        while time.thread_time() < until:
            pass


def argument(job: Job, group: str) -> str:
    """What a program is told of it."""
    return json.dumps(asdict(replace(job, group=group)))


def this() -> Job:
    """This program's, from its argument."""
    return Job(**json.loads(sys.argv[1]))
