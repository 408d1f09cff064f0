"""What a repetition after a crash may do to a target."""

from __future__ import annotations

import enum


class Guarantee(enum.StrEnum):
    """What a repeated batch may do to a sink, or a repeated record to topics; shown by ``plan``.

    EXACTLY_ONCE: nothing, and its rows become visible together. EFFECTIVELY_ONCE: nothing, since
    the ids of rows are those of their events; but rows become visible one by one, while tasks write
    them. AT_LEAST_ONCE: its rows may be there again.
    """

    EXACTLY_ONCE = "exactly once"
    EFFECTIVELY_ONCE = "effectively once"
    AT_LEAST_ONCE = "at least once"
