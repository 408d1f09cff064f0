"""Refused starts of `headrace reprocess`."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.errors.base import RefusedError


@dataclass(eq=False)
class ReprocessRefusedError(RefusedError):
    """The pipeline can't be reprocessed exactly."""

    code = "REPROCESS_REFUSED"
    pipeline: str
    reason: str
    instead: str = field(default="", repr=False)

    @property
    def remedy(self) -> str:
        return self.instead


@dataclass(eq=False)
class RangeExpiredError(RefusedError):
    """Records since the beginning of the range may have been deleted by retention.

    ``earliest_time`` is that of the first record that is left; empty: there is none.
    """

    code = "RANGE_EXPIRED"
    partition: str
    earliest_offset: int
    earliest_time: str
    reprocess_from: str = field(repr=False, default="")

    @property
    def remedy(self) -> str:
        later = (
            f"Start later, with `--from {self.reprocess_from}`; or " if self.reprocess_from else ""
        )
        accept = (
            "reprocess what is left with `--accept-loss`: rows of deleted records stay as they are"
        )
        return f"{later}{accept}."


@dataclass(eq=False)
class ReprocessRunningError(RefusedError):
    """Another `headrace reprocess` of this pipeline is running."""

    code = "REPROCESS_RUNNING"
    pipeline: str
    holder: str

    @property
    def remedy(self) -> str:
        return (
            "Wait for it, or stop it with Ctrl-C: what it has finished stays, and is found again."
        )
