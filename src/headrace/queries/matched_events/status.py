"""How a process that sends matched events is doing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headrace.transfer.status import TransferStatus


@dataclass(frozen=True)
class EmitterStatus(TransferStatus):
    """Counts of what is committed since the process began, and how things stand.

    Attributes:
        read: events that were looked at.
        queries: that are matched.
        registry_offset: the queries are those before this offset of the topic of queries.
        rules: hash of these queries.
    """

    read: int = 0
    queries: int = 0
    registry_offset: int = 0
    rules: str = ""

    kind: ClassVar[str] = "matched_events"
