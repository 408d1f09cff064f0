"""Where late events, and rows behind Spark's watermark, go, unless it is a sink."""

from __future__ import annotations

import enum


class LateData(enum.StrEnum):
    """Destination of late events; :mod:`headrace.pipelines.late_data` has the contract.

    KEEP: the main table. DEAD_LETTER: the dead-letter topic of their topic. DROP: nowhere; they are
    counted. Rows behind the watermark of a step with state, which can't be kept, become dead
    letters with KEEP, too.
    """

    KEEP = "keep"
    DEAD_LETTER = "dead-letter"
    DROP = "drop"
