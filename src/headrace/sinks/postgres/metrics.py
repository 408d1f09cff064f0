"""Figures of a pipeline that writes to PostgreSQL."""

from __future__ import annotations

from headrace.metrics import Metric

DUPLICATES = "postgres_duplicate_rows"
CONFLICTS = "postgres_conflicting_rows"
TOO_OLD = "postgres_too_old_rows"

UNIQUE_METRICS = (
    Metric(
        DUPLICATES,
        "rows",
        "rows that a table with `unique` had already, or events that it had counted, and that were"
        " dropped",
        "rising: a producer sends events again; a few after its restart are normal",
        is_counter=True,
    ),
    Metric(
        CONFLICTS,
        "rows",
        "rows whose key a table with `unique` had, or events whose key it had counted, with other"
        " values; of `UPSERT`, rows that are as new as that of their key, with other values: dead"
        " letters",
        "above 0: `headrace dead-letters list`; a column that differs in each duplicate belongs"
        " into `Unique.ignore`; of `UPSERT`, choose a column for `newest_by` that differs",
        is_counter=True,
    ),
    Metric(
        TOO_OLD,
        "rows",
        "events of a time whose keys a table of `Stats` with `unique` no longer remembers: dead"
        " letters",
        "above 0: events come later than `Unique.within` allows, or a topic was reset; a longer"
        " one, or none, helps with events that come after it: what is forgotten stays so",
        is_counter=True,
    ),
)
