"""What a request takes from the buckets of its rate limits, and the interface of the buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BucketRequest:
    """An amount that is taken from one bucket.

    Attributes:
        bucket: its name, such as ``account/acme/events``.
        amount: events or bytes.
        per_second: rate at which it refills.
        burst_seconds: what it holds when it is full, in seconds of its rate.
    """

    bucket: str
    amount: float
    per_second: float
    burst_seconds: float


class Limiter(Protocol):
    """Token buckets that several workers share.

    A charge is taken from all its buckets or from none. One that is larger than a bucket is taken
    when that is full, and leaves a debt. Over any time ``t`` a bucket gives at most
    ``per_second * (burst_seconds + t)``, and one charge more.
    """

    async def acquire(self, charges: Sequence[BucketRequest]) -> float:
        """Takes the amounts from all buckets or from none.

        Returns:
            0.0 if they were taken, otherwise the seconds after which to try again.
        """
        ...

    async def close(self) -> None:
        """Closes files and connections; the buckets stay."""
        ...
