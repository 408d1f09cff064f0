"""Names of indices."""

from __future__ import annotations

import enum
import re

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_MAX_NAME_BYTES = 200  # a server takes 255, the time and the name of the template included


class IndexBy(enum.StrEnum):
    """How long the event time is that an index has documents of, in UTC.

    HOUR: ``clicks-2026.11.30.13``. DAY: ``clicks-2026.11.30``. MONTH: ``clicks-2026.11``.
    """

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"

    @property
    def time_format(self) -> str:
        """Format of the time in the name of an index."""
        parts = ["%Y", "%m", "%d", "%H"]
        return ".".join(parts[: [IndexBy.MONTH, IndexBy.DAY, IndexBy.HOUR].index(self) + 2])

    def pattern(self, index: str) -> str:
        """Returns the pattern of the names."""
        return f"{index}-{'.'.join('*' * (self.time_format.count('%')))}"


def is_index_name(name: object) -> bool:
    """Whether it can be the name of an index."""
    return (
        isinstance(name, str)
        and _NAME.fullmatch(name) is not None
        and len(name.encode()) <= _MAX_NAME_BYTES
    )
