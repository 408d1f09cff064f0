"""What both ends of a link hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.ledger.sums import Sums
from headrace.link_ledger.accepted import AcceptedRange
from headrace.link_ledger.records import LinkKey


@dataclass(frozen=True)
class LinkCount:
    """The records at both ends of a link, as far as both hold them.

    Attributes:
        partitions: names of the target's partitions that were counted, by number.
        source: sums of the records at the source, by fate.
        target: those at the target.
        is_exact: whether the target tells which of its records are at or after the position; such
            ones are WAITING there, too.
        unknown: why other partitions were not counted, as sentences.
        accepted: ranges that a user has accepted to leave out, and that the position has passed.
    """

    partitions: Mapping[int, str] = field(default_factory=dict)
    source: Mapping[LinkKey, Sums] = field(default_factory=dict)
    target: Mapping[LinkKey, Sums] = field(default_factory=dict)
    is_exact: bool = False
    unknown: Sequence[str] = ()
    accepted: Sequence[AcceptedRange] = ()
