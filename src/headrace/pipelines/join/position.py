"""Where a partition of a join stands."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class JoinPosition:
    """The place at which a partition of a join stands, at the start or at the end of a batch.

    Attributes:
        earlier: next offset of the topic whose events come first.
        later: next offset of the other topic.
        clock_us: event time up to which the earlier topic has been read.
        horizon_us: earlier events before it are forgotten: no later one asks for them any more.
    """

    earlier: int
    later: int
    clock_us: int
    horizon_us: int

    @property
    def file(self) -> str:
        """Name of the state's file."""
        return "state-" + "-".join(f"{number:020d}" for number in astuple(self)) + ".msgpack"
