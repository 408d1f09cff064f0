"""What a batch asks of the claim of its driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _allow() -> None:
    """A driver without a standby always may."""


@dataclass(frozen=True)
class BatchClaim:
    """Whether the driver may run a batch. Both are called on Spark's thread.

    Attributes:
        begin: raises if a batch must not begin.
        check: raises if another driver may write.
    """

    begin: Callable[[], None] = _allow
    check: Callable[[], None] = _allow
