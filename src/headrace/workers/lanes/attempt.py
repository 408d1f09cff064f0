"""Calls of a task's methods: one attempt at a record, or a call of the task's own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from headrace.errors import WorkerStateError, WrongOffsetError
from headrace.kafka.write.record import ProducerRecord
from headrace.runtime.error_text import is_error
from headrace.workers.lanes.held import NOTHING, CallSends
from headrace.workers.tasks.record import ConsumedRecord
from headrace.workers.tasks.timers import TimerRecord

Report: TypeAlias = Callable[["RecordAttempt", BaseException | None], None]

# One lock for all calls: only the first send of a call takes it.
_MAKING = threading.Lock()


class Sends:
    """The sends of one call, until all in-sync replicas have them.

    :meth:`add` may be called on any thread, everything else on the event loop.

    Attributes:
        error: why something was not written; ``None``: nothing has failed so far.
    """

    __slots__ = (
        "_added",
        "_confirmed",
        "_has_ended",
        "_held",
        "_held_bytes",
        "_when_confirmed",
        "error",
    )

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._held: list[ProducerRecord] = []
        self._held_bytes = 0
        self._has_ended = False
        self._added: list[None] = []  # its append is atomic, and the sum of an int is not
        self._confirmed = 0
        self._when_confirmed: Callable[[], None] | None = None

    @property
    def are_confirmed(self) -> bool:
        """Whether nothing is in flight."""
        return self._confirmed == len(self._added)

    def add(self) -> None:
        """Counts a send that starts now."""
        self._added.append(None)

    def check_open(self, topic: str) -> None:
        """Checks that a record to ``topic`` can still be held. On any thread.

        Raises:
            WorkerStateError: if the call has ended: the record would be in no transaction.
        """
        if self._has_ended:
            raise WorkerStateError(
                f"sent to topic {topic} after the record that it was sent for was done or had "
                "failed: with EXACTLY_ONCE it would be in no transaction"
            )

    def hold(self, record: ProducerRecord, weight: int) -> None:
        """Keeps a record for the transaction of the call, unless that has failed meanwhile.

        ``weight`` is the bytes of the record.
        """
        if not self._has_ended:
            self._held.append(record)
            self._held_bytes += weight

    def take_held(self) -> CallSends:
        """Returns what it holds, and takes no more."""
        self._has_ended = True
        held = CallSends(self._held, self._held_bytes)
        self._held, self._held_bytes = [], 0
        return held

    def confirm(self, error: BaseException | None) -> None:
        """Counts a send that was acknowledged, or that failed."""
        self._confirmed += 1
        if self.error is None:
            self.error = error
        if self._when_confirmed is not None and self.are_confirmed:
            call, self._when_confirmed = self._when_confirmed, None
            call()

    def when_confirmed(self, call: Callable[[], None]) -> None:
        """Calls ``call`` once nothing is in flight any more; something is now."""
        self._when_confirmed = call

    async def confirmed(self) -> None:
        """Returns when nothing is in flight. Raises what failed."""
        while not self.are_confirmed:
            confirmed = asyncio.Event()
            self.when_confirmed(confirmed.set)
            await confirmed.wait()
        if self.error is not None:
            raise self.error


class Call:
    """A call of one of a task's methods.

    Attributes:
        started: when the event loop or a thread started it, by the loop's clock; infinite while it
            waits for a thread.
        expired_at: when it had taken too long and was cancelled; 0: it was not.
        sends: what was sent in it; ``None``: nothing.
    """

    __slots__ = ("expired_at", "sends", "started")

    def __init__(self) -> None:
        self.started = self.expired_at = 0.0
        self.sends: Sends | None = None

    def sending(self) -> Sends:
        """Returns its ``sends``, for something more. On any thread."""
        if self.sends is None:
            with _MAKING:
                if self.sends is None:
                    self.sends = Sends()
        return self.sends

    async def confirm_sends(self) -> None:
        """Returns when all in-sync replicas have what was sent in it. Raises what failed."""
        if self.sends is not None:
            await self.sends.confirmed()


CURRENT: contextvars.ContextVar[Call] = contextvars.ContextVar("headrace_call")
"""The call that the running code belongs to."""


class OwnCall(Call):
    """A call of ``init``, ``punctuate`` or ``close``."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class RecordAttempt(Call):
    """An attempt at a record, and the observer of it that its task may be given.

    Attributes:
        record: with the number of the attempt.
        outcome: what its policy sends for it when it has failed; ``None``: its policy has sent
            nothing.
        offset: where it was read.
        due_ms: its turn does not come before, milliseconds since 1970.
        weight: bytes that it takes.
        first_failed_ms: when an attempt failed first; -1: none has.
        replay: headers of the record's replay, which the task does not see.
        error: why it failed before its task was called; ``None``: it has not.
        is_given_up: its policy ended it, not its task.
    """

    __slots__ = (
        "_ended",
        "_on_report",
        "_report",
        "due_ms",
        "error",
        "first_failed_ms",
        "is_given_up",
        "offset",
        "outcome",
        "record",
        "replay",
        "weight",
    )

    def __init__(self, received: ConsumedRecord, weight: int, on_report: Report) -> None:
        # Sets what Call does by itself: one attempt is made for each record, and super() costs.
        self.record, self.offset, self.weight = received.record, received.offset, weight
        self.due_ms, self.first_failed_ms = received.due_ms, received.first_failed_ms
        self.replay = received.replay
        self.error: BaseException | None = received.error
        self.started = self.expired_at = 0.0
        self.sends = None
        self.outcome: Call | None = None
        self.is_given_up = self._ended = False
        self._report = self._on_report = on_report

    @property
    def is_timer(self) -> bool:
        """Whether it is an attempt at a timer, not at a record."""
        return isinstance(self.record, TimerRecord)

    def on_success(self) -> None:
        """Reports that the record is done.

        Raises:
            WrongOffsetError: if its end was reported before.
        """
        self._end(None)

    def on_failure(self, error: BaseException) -> None:
        """Reports that the record failed.

        Raises:
            TypeError: if ``error`` is no exception.
            WrongOffsetError: if its end was reported before.
        """
        if not is_error(error, BaseException):
            raise TypeError(f"on_failure takes an exception, not {error!r}")
        self._end(error)

    def end_sends(self) -> CallSends:
        """Returns what a transaction must write of it, now that it is done.

        What its task sent in an attempt that failed is left out.
        """
        own = self.sending().take_held()
        if not self.is_given_up:
            return own
        return NOTHING if self.outcome is None else self.outcome.sending().take_held()

    def abandon(self) -> bool:
        """Ignores its observer from now on; returns ``False`` if its end was reported before."""
        if self._ended:
            return False
        self._ended, self._report = True, _ignore
        return True

    def failed_at(self, now_ms: int) -> None:
        """Notes when an attempt failed; the first time counts."""
        if self.first_failed_ms < 0:
            self.first_failed_ms = now_ms

    def next(self) -> RecordAttempt:
        """Returns the next attempt."""
        return self.reset(self.record.attempt + 1)

    def reset(self, attempt: int = 0) -> RecordAttempt:
        """Returns this attempt, or number ``attempt``, without sends and deadline."""
        record = msgspec.structs.replace(self.record, attempt=attempt or self.record.attempt)
        received = ConsumedRecord(
            record,
            record.topic_partition,
            self.offset,
            first_failed_ms=self.first_failed_ms,
            replay=self.replay,
        )
        return RecordAttempt(received, self.weight, self._on_report)

    def _end(self, error: BaseException | None) -> None:
        if self._ended and self._report is not _ignore:
            raise WrongOffsetError(f"the end of {self.record} was reported twice")
        self._ended = True
        self._report(self, error)


def _ignore(attempt: RecordAttempt, error: BaseException | None) -> None:
    """Ignores a report: the partition was revoked, or the attempt timed out."""
