"""What the log says of a pipeline: its states, pauses, batches and dead letters."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping

from headrace.model import DeadLetter, TopicPartition
from headrace.pipelines.status import PipelineStatus
from headrace.service.status import State

_LOG = logging.getLogger("headrace.pipelines")
_FAILURES = (State.FAILED, State.REFUSED)


def log_changes(before: PipelineStatus, after: PipelineStatus) -> None:
    """Logs a new state, a new reason and other paused partitions."""
    if after.state != before.state:
        level = logging.ERROR if after.state in _FAILURES else logging.INFO
        _LOG.log(level, "The pipeline is %s%s", after.state, _because(after.reason))
    elif after.reason != before.reason:
        # While it runs, a pipeline has a reason only where it waits.
        if after.state is State.WAITING:  # as a standby
            _LOG.info("The pipeline is %s%s", after.state, _because(after.reason))
        elif after.state is not State.RUNNING:
            _LOG.warning("The pipeline is %s%s", after.state, _because(after.reason))
        elif after.reason:
            _LOG.warning("The pipeline reads nothing until this has passed: %s", after.reason)
        else:
            _LOG.info("The pipeline reads again, this has passed: %s", before.reason)
    if after.paused_partitions != before.paused_partitions:
        _LOG.info("Paused partitions: %s", ", ".join(after.paused_partitions) or "none")


def log_batch(
    batch_id: int,
    figures: Mapping[str, int],
    starts: Mapping[TopicPartition, int],
    positions: Mapping[TopicPartition, int],
) -> None:
    """Logs a batch that is committed, with the next offsets of the partitions that it read."""
    moved = {
        partition: offset
        for partition, offset in sorted(positions.items())
        if starts.get(partition) != offset
    }
    # A batch that reads nothing ends windows or carries a heartbeat: operators need not see it.
    level = logging.INFO if moved else logging.DEBUG
    counts = ", ".join(f"{count} {name}" for name, count in figures.items())
    offsets = ", ".join(
        f"{partition.topic}/{partition.partition} at {offset}"
        for partition, offset in moved.items()
    )
    _LOG.log(level, "Batch %d is committed: %s; next offsets: %s", batch_id, counts, offsets)


def log_dead_letters(letters: Collection[DeadLetter]) -> None:
    """Logs how many records became dead letters, by reason."""
    if letters:
        reasons = Counter(letter.reason for letter in letters)
        counts = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        _LOG.info("%d records are dead letters: %s", len(letters), counts)


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
