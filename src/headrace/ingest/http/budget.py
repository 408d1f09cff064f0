"""Memory that bodies may take in one worker."""

from __future__ import annotations

import threading
from http import HTTPStatus
from types import TracebackType
from typing import Self

from headrace.ingest.http.problem import RETRY_AFTER, refused


class MemoryBudget:
    """Bytes of all bodies in a worker, as they were sent and as they were decoded."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._held_bytes = max_bytes, 0
        # Bodies grow in the event loop and in the threads that decode them.
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """Bytes that all requests hold now."""
        return self._held_bytes

    def share(self) -> BudgetShare:
        """Returns the share of a request, which holds nothing yet."""
        return BudgetShare(self)

    def add(self, size: int) -> bool:
        """Takes ``size`` bytes and returns ``True``, or takes nothing if less is left."""
        with self._lock:
            if self._held_bytes + size > self._max_bytes:
                return False
            self._held_bytes += size
            return True

    def give(self, size: int) -> None:
        """Gives ``size`` bytes back."""
        with self._lock:
            self._held_bytes -= size


class BudgetShare:
    """One request's part of a budget, held until the request is answered.

    Attributes:
        sent_bytes: of the body, as far as it has come.
    """

    __slots__ = ("_budget", "_held_bytes", "sent_bytes")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget, self._held_bytes = budget, 0
        self.sent_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._budget.give(self._held_bytes)
        self._held_bytes = 0

    def received(self, size: int) -> None:
        """Counts bytes of the body that have come, and holds them; raises like :meth:`hold`."""
        self.sent_bytes += size
        self.hold(size)

    def hold(self, size: int) -> None:
        """Takes bytes from the budget until the request is answered.

        Raises:
            RefusedRequestError: 503 if all requests together would hold more than the budget.
        """
        if not self._budget.add(size):
            detail = "the service holds too many bodies at a time; nothing of this one was taken"
            raise refused(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", detail, RETRY_AFTER)
        self._held_bytes += size

    def release(self, size: int) -> None:
        """Gives bytes back that are not needed any more."""
        self._held_bytes -= size
        self._budget.give(size)
