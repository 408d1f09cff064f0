"""Figures of a pipeline that writes to the lake."""

from __future__ import annotations

from headrace.metrics import Metric

LAKE_METRICS = (
    Metric(
        "files_written",
        "files",
        "data files committed to the sink",
        "many with few rows: longer batches (`BatchLimits.max_wait`) or fewer partitions",
        is_counter=True,
    ),
    Metric(
        "files_merged",
        "files",
        "small files of the table that its maintenance has merged into larger ones",
        "0 while `files_written` rises by thousands: see `maintenance_failures`",
        is_counter=True,
    ),
    Metric(
        "maintenance_failures",
        "attempts",
        "attempts to merge files or to shorten the table's log that failed; batches go on",
        "rising: `maintenance_reason` and the log say why; the table gets slow to read",
        is_counter=True,
    ),
)
