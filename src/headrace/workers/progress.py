"""How an instance is doing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.workers.states import InstanceState


@dataclass(frozen=True)
class WorkerProgress:
    """Counts since the instance began, and how things stand. Names are those of the metrics."""

    worker: str
    instance: str
    state: InstanceState
    reason: str = ""
    processed: int = 0
    failed: int = 0
    retried: int = 0
    timed_out: int = 0
    skipped: int = 0
    dead_letters: int = 0
    commits: int = 0
    rebalances: int = 0
    partitions: int = 0
    lanes: int = 0
    in_process: int = 0
    waiting: int = 0
    held: int = 0
    starved: int = 0
    queue_bytes: int = 0
    uncommitted: int = 0
    lag_records: int = 0
    lag_seconds: float = 0.0
    paused_partitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    updated_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return asdict(self)


class Counts(Counter[str]):
    """What is counted, by the names of :class:`WorkerProgress`."""

    def one_more(self, name: str) -> None:
        """Add one."""
        self[name] += 1
