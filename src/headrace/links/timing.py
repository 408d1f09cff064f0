"""How long an instance of a mirror or a merger, or a route of a dispatcher, waits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

MAX_COMMIT_EVERY = timedelta(seconds=5)  # brokers abort a transaction after ten


@dataclass(frozen=True)
class LinkTiming:
    """How long an instance waits.

    Attributes:
        take_seconds: one read waits this long for its records.
        start_seconds: the interval of requests for start positions, while no broker answers.
        check_seconds: the interval of checks of topics, of transactions that stay open, and of
            partitions that are refused or do not exist yet.
        max_retry_seconds: the longest delay of the exponential backoff for a record that the target
            does not take, which starts at ``check_seconds``: each attempt restarts all partitions.
        hung_seconds: a target that returns no positions for this time is reported: brokers end a
            transaction whose instance died within twenty seconds.
        restart_seconds: the delay before it restarts from the committed positions.
    """

    take_seconds: float = 0.1
    start_seconds: float = 1.0
    check_seconds: float = 30.0
    max_retry_seconds: float = 900.0
    hung_seconds: float = 60.0
    restart_seconds: float = 1.0
