"""Which windows a reconciliation shows, and whether it counts rows and records again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class ReconcileRequest:
    """What to compare.

    Attributes:
        times: the windows that hold one of these times; empty: all windows.
        since: windows that start before it are left out.
        recount: whether to count the rows of the tables, the records of links and matched events,
            too.
    """

    times: Collection[datetime] = ()
    since: datetime | None = None
    recount: bool = False

    def shows(self, start: datetime | None, length: int) -> bool:
        """Returns whether a window is asked for, by its start and its length in seconds."""
        if self.since is not None and (start is None or start < self.since):
            return False
        times = [time.timestamp() for time in self.times]
        return not times or any(
            start is not None and 0 <= time - start.timestamp() < length for time in times
        )
