"""Where late events go, unless it is a sink."""

from __future__ import annotations

import enum


class LateData(enum.StrEnum):
    """Destination of late events; :mod:`headrace.pipelines.late_data` has the contract.

    KEEP: the main table. DEAD_LETTER: the dead-letter topic of their topic.
    """

    KEEP = "keep"
    DEAD_LETTER = "dead-letter"
