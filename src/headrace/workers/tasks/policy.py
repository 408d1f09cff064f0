"""What happens to a record that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from headrace.errors import InvalidRecordError
from headrace.model import DeadLetterLimit
from headrace.model.durations import microseconds
from headrace.runtime.error_text import is_error


@dataclass(frozen=True)
class Stop:
    """The instance stops; the record is not done, and comes first after a restart.

    Order is kept. Nothing is lost, and nothing is processed until an operator acts.
    """


@dataclass(frozen=True)
class Skip:
    """The record is logged, counted, and lost. Order is kept."""


@dataclass(frozen=True)
class DeadLetters:
    """The record goes to its topic's dead letters, with its error and its attempts.

    Later records of its key continue without it; a replay puts it after them.

    Attributes:
        limit: when this many fail, the instance stops: dead letters must not empty a whole topic.
    """

    limit: DeadLetterLimit = field(default_factory=DeadLetterLimit)


End: TypeAlias = Stop | Skip | DeadLetters


@dataclass(frozen=True)
class Retry:
    """Tries again in place, after a delay that doubles; its subpartition waits.

    Order is kept until ``then``. Attempts are counted from 1 after a restart.

    Attributes:
        attempts: in all, the first one included.
        first_delay: before the second.
        max_delay: it does not grow beyond.
        then: what happens when the last one failed.
    """

    attempts: int = 5
    first_delay: timedelta = timedelta(seconds=1)
    max_delay: timedelta = timedelta(minutes=1)
    then: End = field(default_factory=DeadLetters)


@dataclass(frozen=True)
class RetryTopics:
    """Puts the record into a retry topic until it is due, and continues with the next.

    Later records of its key overtake it. Attempts and due times are in its headers, so a restart
    changes nothing.

    Attributes:
        delays: one a further attempt, each with a topic of its own.
        then: what happens when the last one failed.
    """

    delays: Sequence[timedelta] = (
        timedelta(seconds=10),
        timedelta(minutes=1),
        timedelta(minutes=10),
    )
    then: End = field(default_factory=DeadLetters)


FailurePolicy: TypeAlias = End | Retry | RetryTopics


def retry_delay(policy: FailurePolicy, error: BaseException, attempt: int) -> timedelta | None:
    """How long to wait before the next attempt; ``None``: there is none."""
    if is_error(error, InvalidRecordError):
        return None
    if isinstance(policy, Retry) and attempt < policy.attempts:
        # In whole numbers: a timedelta of a day, doubled thirty times, is too large.
        doubled_us = microseconds(policy.first_delay) * 2 ** min(attempt - 1, 64)
        return timedelta(microseconds=min(doubled_us, microseconds(policy.max_delay)))
    if isinstance(policy, RetryTopics) and attempt <= len(policy.delays):
        return policy.delays[attempt - 1]
    return None


def ending(policy: FailurePolicy) -> End:
    """Returns the policy for records without further attempts."""
    return policy.then if isinstance(policy, Retry | RetryTopics) else policy
