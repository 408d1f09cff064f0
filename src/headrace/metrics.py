"""Metrics: name, unit, meaning, what to do when one moves.

The names are the fields of a pipeline's progress: in ``headrace run``, ``headrace status`` and
their JSON. Counts begin with the run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A figure of one pipeline.

    Attributes:
        name: the same everywhere.
        unit: what one of it is.
        meaning: what is counted or measured.
        when_it_moves: what to do then.
    """

    name: str
    unit: str
    meaning: str
    when_it_moves: str


METRICS = (
    Metric(
        "rows_in",
        "records",
        "records read from the topics, the bad ones included",
        "standing still with a backlog: see `state` and `reason`",
    ),
    Metric(
        "rows_out",
        "rows",
        "rows committed to the sink",
        "far from rows_in without steps that filter: look at dead_letters",
    ),
    Metric(
        "late_rows",
        "rows",
        "rows that landed in a partition which had ended longer ago than the sink's `lateness`",
        "rising: find the producer that is behind, or raise `lateness`",
    ),
    Metric(
        "duplicate_rows",
        "rows",
        "rows that a step's de-duplication dropped",
        "rising: a producer repeats itself; a few after its restart are normal",
    ),
    Metric(
        "dead_letters",
        "records",
        "records that could not be processed and went to the dead-letter topic",
        "above 0: `headrace dead-letters list`, then correct the producer or the event class",
    ),
    Metric(
        "files_written",
        "files",
        "data files committed to the sink",
        "many with few rows: longer batches (`BatchLimits.max_wait`) or fewer partitions",
    ),
    Metric(
        "records_per_second",
        "records/s",
        "records of the last batch by its duration",
        "below the rate of the topic for long: the backlog grows; more cores or partitions",
    ),
    Metric(
        "batch_seconds",
        "s",
        "duration of the last batch, from its planning to its commit",
        "rising with the same rows: look at the disk of the lake and at Spark's log",
    ),
    Metric(
        "batches",
        "batches",
        "batches finished",
        "standing still with a backlog: the sink or the broker does not answer",
    ),
    Metric(
        "batch_id",
        "number",
        "number of the last batch of this checkpoint; -1 before the first",
        "back to 0: the checkpoint was reset",
    ),
    Metric(
        "backlog_records",
        "records",
        "offsets between what was read and the end of the topics",
        "rising: more arrives than is processed",
    ),
    Metric(
        "backlog_seconds",
        "s",
        "age of the newest record read, while there is a backlog",
        "close to the topic's retention: act before records are deleted unread",
    ),
    Metric(
        "restarts",
        "restarts",
        "restarts after a failure that may pass",
        "rising: `reason` says what fails; the budget ends it as `failed`",
    ),
)
