"""One attempt at one record, from the queue until it is done."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from headrace.errors import WrongOffsetError
from headrace.workers.received import Received

Tell: TypeAlias = Callable[["Handling", BaseException | None], None]

CURRENT: contextvars.ContextVar[Handling] = contextvars.ContextVar("headrace_handling")
"""The attempt that the code which runs belongs to."""


class Handling:
    """An attempt at a record, and the observer of it that its task may be given.

    Attributes:
        record: with the number of the attempt.
        offset: where it was read.
        due_ms: its turn does not come before, milliseconds since 1970.
        weight: bytes that it takes.
        started: when ``process`` was called, by the loop's clock.
        first_failed_ms: when an attempt failed first; -1: none has.
        sends: what was sent for it and is not confirmed yet.
    """

    __slots__ = (
        "_ended",
        "_tell",
        "_teller",
        "due_ms",
        "first_failed_ms",
        "offset",
        "record",
        "sends",
        "started",
        "weight",
    )

    def __init__(self, received: Received, weight: int, tell: Tell) -> None:
        self.record, self.offset, self.weight = received.record, received.offset, weight
        self.due_ms, self.first_failed_ms = received.due_ms, received.first_failed_ms
        self.started = 0.0
        self.sends: list[Awaitable[None]] = []
        self._tell = self._teller = tell
        self._ended = False

    def on_success(self) -> None:
        """The record is done.

        Raises:
            WrongOffsetError: that was said before, or the contrary.
        """
        self._end(None)

    def on_failure(self, error: BaseException) -> None:
        """The record failed. Raises as :meth:`on_success`."""
        self._end(error)

    def abandon(self) -> bool:
        """What its observer says from now on is not heard; ``False``: it has ended."""
        if self._ended:
            return False
        self._ended, self._tell = True, _ignore
        return True

    def failed_at(self, now_ms: int) -> None:
        """The attempt failed; the first time counts."""
        if self.first_failed_ms < 0:
            self.first_failed_ms = now_ms

    def again(self) -> Handling:
        """The next attempt."""
        record = msgspec.structs.replace(self.record, attempt=self.record.attempt + 1)
        received = Received(
            record, record.topic_partition, self.offset, first_failed_ms=self.first_failed_ms
        )
        return Handling(received, self.weight, self._teller)

    async def confirm_sends(self) -> None:
        """Returns when all in-sync replicas have what was sent for it. Raises what failed."""
        while self.sends:
            sends, self.sends = self.sends, []
            await asyncio.gather(*sends)

    def _end(self, error: BaseException | None) -> None:
        if self._ended and self._tell is not _ignore:
            raise WrongOffsetError(f"the end of {self.record} was reported twice")
        self._ended = True
        self._tell(self, error)


def _ignore(handling: Handling, error: BaseException | None) -> None:
    """The partition was revoked, or the attempt timed out."""
