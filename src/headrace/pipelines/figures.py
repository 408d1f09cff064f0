"""What every pipeline counts and measures."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.service.figures import Measured, counter, gauge


@dataclass(frozen=True)
class PipelineFigures(Measured):
    """Counts since a pipeline's run began, and figures of its last batch.

    Attributes:
        batch_id: None before the first batch of the run.
        backlog_records: None while it is not known: the planner has not seen the ends of the topics
            since the run began, or the broker does not respond.
        backlog_seconds: None while it is not known: as of ``backlog_records``, and while there is a
            backlog and the run has read nothing.
    """

    rows_in: int = counter(
        "records",
        "records read from the topics, bad ones and tombstones included",
        "standing still with a backlog: see `state` and `reason`",
    )
    rows_out: int = counter(
        "rows",
        "rows committed to the sink",
        "far from rows_in without steps that filter: look at dead_letters; of `Stats`, "
        "rows are groups",
    )
    late_rows: int = counter(
        "rows",
        "events behind the watermark of their partition, wherever they went: longer ago "
        "than `allowed_lateness` before what earlier batches had reached; with a side "
        "table also those behind the watermark of a step with state",
        "rising: find the producer that is behind, or raise `allowed_lateness`",
    )
    late_side_rows: int = counter(
        "rows",
        "those of `late_rows` that the side table has taken, without those that it rejected",
        "as of `late_rows`; they are in the side table and not in the sink",
    )
    late_dead_letters: int = counter(
        "records",
        "those of `late_rows` that became dead letters; `dead_letters` counts them too",
        "as of `late_rows`; `headrace dead-letters replay` brings them into the sink",
    )
    duplicate_rows: int = counter(
        "rows",
        "rows that a step's de-duplication dropped",
        "rising: a producer sends events again; a few after its restart are normal",
    )
    behind_watermark_rows: int = counter(
        "rows",
        "rows that came to a step with state behind Spark's watermark, and became dead "
        "letters; `dead_letters` counts them too",
        "above 0: `headrace dead-letters list`; a longer `within`, or a longer delay in "
        "the step's `withWatermark`",
    )
    dropped_by_watermark_rows: int = counter(
        "rows",
        "rows that Spark dropped in a step with state because they were older than its "
        "watermark, as `LateData.DROP` asks for; of an aggregate's, those of one group "
        "in one task count as one",
        "above 0: these rows are neither in the sink nor dead letters; another "
        "`late_data`, or a longer delay in the step's `withWatermark`",
    )
    dead_letters: int = counter(
        "records",
        "records that could not be processed and went to the dead-letter topic",
        "above 0: `headrace dead-letters list`, then correct the producer or the event class",
    )
    tombstones: int = counter(
        "records",
        "records without a value, left out of a topic with `compaction`; `rows_in` counts them too",
        "rises as keys are deleted; nothing to do: rows that the sink has stay",
    )
    replays_skipped: int = counter(
        "records",
        "records left out because they were replayed for other pipelines or workers",
        "rises after a replay that was not for this one; nothing to do",
    )
    records_per_second: float = gauge(
        "records/s",
        "records of the last batch by its duration",
        "below the rate of the topic for long: the backlog grows; more cores or partitions",
        default=0.0,
    )
    batch_seconds: float = gauge(
        "s",
        "duration of the last batch, from its planning to its commit",
        "rising with the same rows: look at the disk of the lake and at Spark's log",
        default=0.0,
    )
    batches: int = counter(
        "batches",
        "batches finished",
        "standing still with a backlog: the sink or the broker does not answer",
    )
    batch_id: int | None = gauge(
        "number",
        "number of the last batch of this checkpoint; unknown before the first of a run",
        "back to 0: the checkpoint was reset",
        default=None,
    )
    backlog_records: int | None = gauge(
        "records",
        "offsets between what was read and the end of the topics; unknown while the "
        "broker does not respond",
        "rising: more arrives than is processed",
        default=None,
    )
    backlog_seconds: float | None = gauge(
        "s",
        "age of the newest record read, while there is a backlog; unknown as "
        "`backlog_records` is, and until the first batch of a run has read one",
        "close to the topic's retention: act before records are deleted unread",
        default=None,
    )
    restarts: int = counter(
        "restarts",
        "restarts after a failure that may pass",
        "rising: `reason` says what fails; the budget ends it as `failed`",
    )
