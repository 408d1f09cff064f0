"""Notes when workers and pipelines have processed records, as they report it themselves."""

from __future__ import annotations

import http.client
import itertools
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from headrace.model import TopicPartition
from headrace.pipelines.status import PipelineStatus
from headrace.runtime.servers.ports import LOOPBACK
from headrace.service.status import StatusFolder

LOOK_SECONDS = 0.2

_ANSWER_SECONDS = 1.0
_OFFSET = re.compile(
    r"^headrace_worker_partition_processing_offset\{(?P<labels>.*)\} (?P<offset>[\d.e+]+)$",
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Subject: TypeAlias = tuple[str, TopicPartition | None]
"""A worker and a partition that it reads, or a pipeline as a whole, whose batches have all."""


class Progress(threading.Thread):
    """Looks at all instances again and again until it is stopped.

    A worker reports each second, a pipeline at the end of each batch.

    Args:
        state: the project's folder, with the statuses of pipelines.
        ports: by which instances of workers serve their metrics.

    Attributes:
        times: when the position of a subject had moved forward: seconds since 1970.
    """

    def __init__(self, state: Path, ports: Sequence[int]) -> None:
        super().__init__(name="drill-progress", daemon=True)
        self.times: dict[Subject, list[float]] = defaultdict(list)
        self._pipelines = StatusFolder(state, PipelineStatus)
        self._ports = ports
        self._positions: dict[Subject, float] = {}
        self._is_enough = threading.Event()

    def run(self) -> None:
        """Looks until :meth:`stop`."""
        while not self._is_enough.wait(LOOK_SECONDS):
            self.look()

    def stop(self) -> None:
        """Ends it."""
        self._is_enough.set()
        while self.is_alive():
            self.join(LOOK_SECONDS)

    def look(self) -> None:
        """Notes what has moved since the last look."""
        for status in self._pipelines.read():
            subject = (status.name, None)
            # Its counts start over with its driver.
            if status.rows_in < self._positions.get(subject, 0):
                self._positions[subject] = 0
            self._note({subject: status.rows_in})
        for port in self._ports:
            self._note(offsets_in(_metrics(port)))

    def _note(self, positions: Mapping[Subject, float]) -> None:
        now = time.time()
        for subject, position in positions.items():
            # A worker that has taken a partition over repeats records: that is no progress.
            if position > self._positions.get(subject, 0):
                self._positions[subject] = position
                self.times[subject].append(now)

    def has_moved(self, subjects: Iterable[Subject], since: float) -> bool:
        """Returns whether each of them has moved since a time."""
        return all((times := self.times[s]) and times[-1] > since for s in list(subjects))

    def longest_gap(self, subjects: Iterable[Subject], since: float, until: float) -> float:
        """Returns how long any of them stood still at most between two times."""
        return max(longest_gap(list(self.times[subject]), since, until) for subject in subjects)


def offsets_in(metrics: str) -> dict[Subject, float]:
    """Returns the positions of partitions that a worker's metrics have."""
    offsets: dict[Subject, float] = {}
    for sample in _OFFSET.finditer(metrics):
        labels = dict(_LABEL.findall(sample["labels"]))
        partition = TopicPartition(labels["topic"], int(labels["partition"]))
        offsets[labels["worker"], partition] = float(sample["offset"])
    return offsets


def longest_gap(times: Sequence[float], since: float, until: float) -> float:
    """Returns the longest time between two of ``times``, the bounds included."""
    inside = [when for when in times if since <= when <= until]
    bounded = [since, *sorted(inside), until]
    return max(after - before for before, after in itertools.pairwise(bounded))


def _metrics(port: int) -> str:
    """Returns what an instance serves; nothing while it does not."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()
