"""An instance of a worker can't continue, or a record can't be processed."""

from __future__ import annotations

from headrace.errors.base import HeadraceError


class WorkerError(HeadraceError):
    """An instance of a worker can't continue."""


class ProcessingFailedError(WorkerError):
    """A record failed, and the worker stops at failures; ``__cause__`` is what the task raised."""


class ProcessingTimeoutError(WorkerError):
    """A record was not done within the worker's ``processing_timeout``."""


class TaskTimeoutError(WorkerError):
    """``init``, ``punctuate`` or ``close`` of a task did not end in time."""


class TaskThreadsError(WorkerError):
    """Every thread for ordinary functions is held by a call that timed out and still runs."""


class LaneEndedError(WorkerError):
    """The event loop's task of a subpartition ended, and nothing had ended it."""


class LifespanEndedError(WorkerError):
    """The lifespan of a worker ended while its instance ran."""


class SubpartitionError(WorkerError):
    """A partitioner gave a count below 1, or the tasks of a partition can't be made."""


class ReferencesTooLargeError(WorkerError):
    """The references of a worker are larger than it allows; never retried."""

    def __init__(self, worker: str, topics: str, size: int, max_bytes: int) -> None:
        self.worker, self.topics, self.size, self.max_bytes = worker, topics, size, max_bytes
        super().__init__(
            f"the references of {worker} ({topics}) have more than {max_bytes} bytes: {size}. "
            "Raise its reference_bytes, or delete keys from the topics"
        )


class StateTooLargeError(WorkerError):
    """The state of an instance is larger than its worker allows; never retried."""

    def __init__(self, worker: str, topic: str, size: int, max_bytes: int) -> None:
        self.worker, self.topic, self.size, self.max_bytes = worker, topic, size, max_bytes
        super().__init__(
            f"the state of an instance of {worker} ({topic}) has more than {max_bytes} bytes: "
            f"{size}. Raise its state_bytes, run more instances, or delete keys that are over"
        )


class PlacedRunError(WorkerError):
    """The instances were stopped because one failed."""

    def __init__(self, worker: str, reason: str) -> None:
        self.worker, self.reason = worker, reason
        super().__init__(f"the instances of {worker} were stopped: {reason}")


class LastCommitError(WorkerError):
    """The last commit of an instance was not confirmed."""

    def __init__(self, group: str, records: int) -> None:
        self.group, self.records = group, records
        super().__init__(
            f"the last commit of group {group!r} was not confirmed: "
            f"its next start may repeat {records} records or more"
        )


class WorkerStateError(WorkerError):
    """The instance is not in a state that allows it."""


class InvalidRecordError(HeadraceError):
    """Raised by a task for a record that no retry can help.

    Args:
        reason: a stable code, such as ``unknown-campaign``.
        detail: a sentence for the person who investigates it.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}" if detail else reason)


class WrongOffsetError(HeadraceError):
    """A record was reported done that was never consumed, or that was done already."""
