"""What a drill has found."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from headrace.ledger.balance import Book
from headrace.operations.measuring.result import Machine
from headrace.operations.reconciling.reconciliation import Reconciliation


@dataclass(frozen=True)
class HappenedFault:
    """A fault that happened.

    Attributes:
        kind: of the fault.
        failed: what has failed.
        at_seconds: since the first fault.
        seconds: until everything worked again: all copies in sync, and each topic, worker and
            pipeline with new records.
    """

    kind: str
    failed: str
    at_seconds: float
    seconds: float


@dataclass(frozen=True)
class Standstill:
    """How long something stood still at most, in each fault of a kind.

    Attributes:
        fault: kind of the fault; "calm": without one, for comparison.
        subject: "writing", or the name of a worker or pipeline.
        seconds: the longest of each fault; of writing, in the partition that waited longest.
    """

    fault: str
    subject: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Returns the median of the faults."""
        return statistics.median(self.seconds)

    @property
    def longest(self) -> float:
        """Returns the longest of the faults."""
        return max(self.seconds)

    def to_json(self) -> Mapping[str, object]:
        """Returns the fields, the median and the longest."""
        return {
            "fault": self.fault,
            "subject": self.subject,
            "seconds": self.seconds,
            "median": self.median,
            "longest": self.longest,
        }


@dataclass(frozen=True)
class DrillReport:
    """A drill and its result.

    Attributes:
        command: that was called.
        drilled_at: when it ended.
        versions: of headrace and what it uses.
        machine: that all of it ran on.
        seed: that the faults follow from.
        names: the workers and pipelines that ran.
        events: that were acknowledged.
        faults: that happened, in order.
        standstills: how long anything stood still.
        books: whether everything has arrived.
        problems: what did not work again in time, or ended by itself, as sentences.
        not_checked: what the drill says nothing about.
    """

    command: str
    drilled_at: str
    versions: Mapping[str, str]
    machine: Machine
    seed: int
    names: tuple[str, ...]
    events: int
    faults: tuple[HappenedFault, ...]
    standstills: tuple[Standstill, ...]
    books: tuple[Book, ...]
    problems: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()

    @cached_property
    def reconciliation(self) -> Reconciliation:
        """Returns the books, compared."""
        return Reconciliation(self.books)

    @property
    def has_held(self) -> bool:
        """Returns whether nothing is lost or repeated beyond the promise, and all worked again."""
        return not self.problems and not self.reconciliation.is_unbalanced

    def to_json(self) -> Mapping[str, object]:
        """Returns the fields, with the books as `reconcile` has them, and whether it has held."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {"has_held": self.has_held, **fields, "books": self.reconciliation}
