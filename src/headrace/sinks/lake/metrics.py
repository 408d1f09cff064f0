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
        "attempts to merge files or to shorten the table's log that failed; batches continue",
        "rising: `maintenance_reason` and the log say why; the table gets slow to read",
        is_counter=True,
    ),
    Metric(
        "lake_duplicate_rows",
        "rows",
        "rows that a table with `unique` had already, and that were dropped;"
        " `lake_duplicates_by_hour` in the status has those of the newest hours of event time",
        "rising: a producer sends events again; a few after its restart are normal",
        is_counter=True,
    ),
    Metric(
        "lake_conflicting_rows",
        "rows",
        "rows whose key a table with `unique` had already, with other values: dead letters",
        "above 0: `headrace dead-letters list`; a column that differs in each duplicate belongs"
        " into `Unique.ignore`",
        is_counter=True,
    ),
    Metric(
        "lake_unchecked_rows",
        "rows",
        "rows of a table with `unique` that have no value in a column of its key, or no event time",
        "above 0: duplicates may be among them; choose columns for `by` that are never null",
        is_counter=True,
    ),
)
