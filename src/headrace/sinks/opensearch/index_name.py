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
        return ".".join(("%Y", "%m", "%d", "%H")[: self._parts])

    @property
    def _parts(self) -> int:
        return 2 + (IndexBy.MONTH, IndexBy.DAY, IndexBy.HOUR).index(self)

    def patterns(self, index: str) -> list[str]:
        """Returns the patterns of names for a template: of each first digit of a year."""
        return [f"{index}-{digit}{'.'.join('*' * self._parts)}" for digit in range(10)]

    def is_name(self, name: str, index: str) -> bool:
        """Whether it is the name of one of the indices, and not such as that of ``index-other``."""
        time = name.removeprefix(f"{index}-")
        return (
            time != name
            and re.fullmatch(rf"\d{{4}}(\.\d\d){{{self._parts - 1}}}", time) is not None
        )


def is_index_name(name: object) -> bool:
    """Whether it can be the name of an index."""
    return (
        isinstance(name, str)
        and _NAME.fullmatch(name) is not None
        and len(name.encode()) <= _MAX_NAME_BYTES
    )
