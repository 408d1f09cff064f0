"""The intervals and timeouts of links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from headrace.model.fault import Fault, duration

MAX_COMMIT_EVERY = timedelta(seconds=5)  # brokers abort a transaction after ten


def interval_faults(declared: object, commit_every: timedelta, label: str) -> Iterator[Fault]:
    """Yields what is wrong with ``commit_every`` of a link, the interval of transactions."""
    wrong = list(duration(declared, "commit_every", timedelta.resolution))
    yield from wrong
    if not wrong and commit_every > MAX_COMMIT_EVERY:
        yield Fault(
            f"{label}: commit_every is {commit_every}",
            f"at most {MAX_COMMIT_EVERY}: brokers end a transaction after ten seconds",
        )


@dataclass(frozen=True)
class LinkTiming:
    """The intervals and timeouts of an instance.

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

    take_seconds: float = 0.1  # a rebalance, or a stop, is noticed between two reads
    start_seconds: float = 1.0
    # Each check asks brokers of two sites for all topics. It is longer than a transaction may take,
    # so that what two checks see open at one offset does not end by itself.
    check_seconds: float = 30.0
    max_retry_seconds: float = 900.0
    hung_seconds: float = 60.0
    restart_seconds: float = 1.0
