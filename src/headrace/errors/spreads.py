"""Spreads of accounts over partitions that are looked at, applied and followed."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors.base import FactsError


@dataclass(eq=False)
class SpreadInvalidError(FactsError):
    """The accounts of the topic can't be spread like this."""

    exit_code = 2
    topic: str
    field: str
    value: str
    reason: str


@dataclass(eq=False)
class SpreadSampleError(FactsError):
    """The records of the topic do not say which accounts have its load."""

    exit_code = 2
    topic: str
    records: int
    reason: str


@dataclass(eq=False)
class SpreadsChangedError(FactsError):
    """Spreads were applied by someone else meanwhile, or it is unknown whether these were."""

    topic: str
    version: int
    reason: str

    @property
    def remedy(self) -> str:
        return "`headrace topics spread` shows what counts now; apply again what it proposes."


@dataclass(eq=False)
class SpreadsUnknownError(FactsError):
    """It is not known which spreads count for the event, and it was not sent."""

    topic: str
    reason: str

    @property
    def remedy(self) -> str:
        return "Events of earlier windows are sent; this one can be once the brokers answer."
