"""Metrics: name, unit, meaning, and what to do when the figure moves.

The names are the fields of the progress of pipelines and workers: in ``headrace run``,
``headrace status`` and their JSON. Counters begin at 0 with the run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A figure of one pipeline, of one instance of a worker, or of one of its partitions.

    Attributes:
        name: name in progress, JSON and /metrics.
        unit: unit of the figure.
        meaning: what is counted or measured.
        runbook: when to act, and what to do then.
        is_counter: whether it begins at 0 with the run and never falls.
    """

    name: str
    unit: str
    meaning: str
    runbook: str
    is_counter: bool = False


METRICS = (
    Metric(
        "rows_in",
        "records",
        "records read from the topics, bad ones and tombstones included",
        "standing still with a backlog: see `state` and `reason`",
        is_counter=True,
    ),
    Metric(
        "rows_out",
        "rows",
        "rows committed to the sink",
        "far from rows_in without steps that filter: look at dead_letters; of `Stats`, rows are "
        "groups",
        is_counter=True,
    ),
    Metric(
        "late_rows",
        "rows",
        "events behind the watermark of their partition, wherever they went: longer ago than"
        " `allowed_lateness` before what earlier batches had reached; with a side table also"
        " those behind the watermark of a step with state",
        "rising: find the producer that is behind, or raise `allowed_lateness`",
        is_counter=True,
    ),
    Metric(
        "late_side_rows",
        "rows",
        "those of `late_rows` that the side table has taken, without those that it rejected",
        "as of `late_rows`; they are in the side table and not in the sink",
        is_counter=True,
    ),
    Metric(
        "late_dead_letters",
        "records",
        "those of `late_rows` that became dead letters; `dead_letters` counts them too",
        "as of `late_rows`; `headrace dead-letters replay` brings them into the sink",
        is_counter=True,
    ),
    Metric(
        "duplicate_rows",
        "rows",
        "rows that a step's de-duplication dropped",
        "rising: a producer sends events again; a few after its restart are normal",
        is_counter=True,
    ),
    Metric(
        "behind_watermark_rows",
        "rows",
        "rows that came to a step with state behind Spark's watermark, and became dead letters;"
        " `dead_letters` counts them too",
        "above 0: `headrace dead-letters list`; a longer `within`, or a longer delay in the step's"
        " `withWatermark`",
        is_counter=True,
    ),
    Metric(
        "dropped_by_watermark_rows",
        "rows",
        "rows that Spark dropped in a step with state because they were older than its watermark,"
        " as `LateData.DROP` asks for; of an aggregate's, those of one group in one task count as"
        " one",
        "above 0: these rows are neither in the sink nor dead letters; another `late_data`, or a"
        " longer delay in the step's `withWatermark`",
        is_counter=True,
    ),
    Metric(
        "dead_letters",
        "records",
        "records that could not be processed and went to the dead-letter topic",
        "above 0: `headrace dead-letters list`, then correct the producer or the event class",
        is_counter=True,
    ),
    Metric(
        "tombstones",
        "records",
        "records without a value, left out of a topic with `compaction`; `rows_in` counts them too",
        "rises as keys are deleted; nothing to do: rows that are there stay",
        is_counter=True,
    ),
    Metric(
        "replays_skipped",
        "records",
        "records left out because they were replayed for other pipelines or workers",
        "rises after a replay that was not for this one; nothing to do",
        is_counter=True,
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
        is_counter=True,
    ),
    Metric(
        "batch_id",
        "number",
        "number of the last batch of this checkpoint; unknown before the first of a run",
        "back to 0: the checkpoint was reset",
    ),
    Metric(
        "backlog_records",
        "records",
        "offsets between what was read and the end of the topics; unknown while the broker does not"
        " respond",
        "rising: more arrives than is processed",
    ),
    Metric(
        "backlog_seconds",
        "s",
        "age of the newest record read, while there is a backlog; unknown as `backlog_records` is,"
        " and until the first batch of a run has read one",
        "close to the topic's retention: act before records are deleted unread",
    ),
    Metric(
        "restarts",
        "restarts",
        "restarts after a failure that may pass",
        "rising: `reason` says what fails; the budget ends it as `failed`",
        is_counter=True,
    ),
)
"""Of one pipeline; at /metrics ``headrace_pipeline_<name>``, counts with ``_total``."""

WORKER_METRICS = (
    Metric(
        "processed",
        "records",
        "records that are done, the skipped and the dead letters included",
        "standing still with a lag: see `paused_partitions`, `blocked`, `processing_seconds`",
        is_counter=True,
    ),
    Metric(
        "failed",
        "attempts",
        "attempts that failed, time-outs included",
        "rising: the log names the records; what the task calls may be away",
        is_counter=True,
    ),
    Metric(
        "retried",
        "attempts",
        "attempts that will be retried",
        "rising with `failed`: they are retried; without an end: more attempts will not help",
        is_counter=True,
    ),
    Metric(
        "timed_out",
        "attempts",
        "attempts that took longer than `processing_timeout`",
        "above 0: what the task calls hangs, or the limit is too short",
        is_counter=True,
    ),
    Metric(
        "skipped",
        "records",
        "records that failed for good and were left out (`Skip`)",
        "above 0: that many records are lost; the log names them",
        is_counter=True,
    ),
    Metric(
        "dead_letters",
        "records",
        "records that failed for good and went to the dead-letter topic",
        "above 0: `headrace dead-letters list`, then correct the task or the producer",
        is_counter=True,
    ),
    Metric(
        "tombstones",
        "records",
        "records without a value, left out of a topic with `compaction` as the task takes events",
        "rises as keys are deleted; a task that takes the `record` alone is given them",
        is_counter=True,
    ),
    Metric(
        "replays_skipped",
        "records",
        "records left out because they were replayed for other pipelines or workers",
        "rises after a replay that was not for this one; nothing to do",
        is_counter=True,
    ),
    Metric(
        "commits",
        "commits",
        "commits of offsets",
        "standing still while `processed` rises: a record is stuck (`processing_seconds`)",
        is_counter=True,
    ),
    Metric(
        "rebalances",
        "rebalances",
        "times that partitions came to this instance",
        "rising without a deploy: members come and go, see their logs",
        is_counter=True,
    ),
    Metric(
        "partitions",
        "partitions",
        "partitions that are this instance's",
        "0 for long: there are more instances than partitions",
    ),
    Metric(
        "lanes",
        "lanes",
        "subpartitions of these partitions: most records at a time, unless they are observed",
        "below what the rate needs: more subpartitions",
    ),
    Metric(
        "in_process",
        "records",
        "records that the task was given and that are not done",
        "close to `lanes` with a lag: more subpartitions or instances",
    ),
    Metric(
        "waiting",
        "records",
        "records that wait in this instance for their turn",
        "a few thousand are normal under load",
    ),
    Metric(
        "blocked",
        "lanes",
        "lanes whose record was not accepted by its task, or is a retry that is not due",
        "for long: what the task waits for does not come",
    ),
    Metric(
        "starved",
        "lanes",
        "lanes with nothing to do, in a partition that a full lane beside them has paused",
        "above 0 for long: one key or lane is too slow; more subpartitions, a larger `queue_bytes`",
    ),
    Metric(
        "queue_bytes",
        "bytes",
        "bytes of records that wait or are in process",
        "at `queue_limit_bytes`: the tasks are slower than the topic, which is what limits are for",
    ),
    Metric(
        "queue_limit_bytes",
        "bytes",
        "the worker's `queue_bytes`, at which partitions are paused; it may come to twice that",
        "as declared",
    ),
    Metric(
        "lane_limit_bytes",
        "bytes",
        "most that one lane may hold now, before its partition is paused",
        "falls as the queue fills, never below the lanes' fair share",
    ),
    Metric(
        "uncommitted",
        "records",
        "records that are done, after one that is not: not covered by the committed offset",
        "large: a record is stuck; a restart repeats only what the commit's metadata can't hold",
    ),
    Metric(
        "processing_seconds",
        "s",
        "how long the oldest record in process has been with the task",
        "close to `processing_timeout`: what the task calls is slow",
    ),
    Metric(
        "lag_records",
        "records",
        "offsets from the first record that is not done to the end of the partitions",
        "rising: more arrives than is processed",
    ),
    Metric(
        "lag_seconds",
        "s",
        "age of the oldest record that is not done, to a second; 0 without a lag",
        "close to the topic's retention: act before records are deleted unread",
    ),
)
"""Of one instance of a worker; at /metrics ``headrace_worker_<name>``, counts with ``_total``."""

PARTITION_METRICS = (
    Metric(
        "paused",
        "1 or 0",
        "its records wait in Kafka, by reason: `lane`, `budget` or `requested`",
        "`requested`: an operator paused it (`headrace workers resume`); the others pass",
    ),
    Metric(
        "consumed_offset",
        "offset",
        "the next record to read",
        "standing still with a lag: it is paused",
    ),
    Metric(
        "processing_offset",
        "offset",
        "the first record that is not done",
        "standing still while `consumed_offset` rises: that record is stuck",
    ),
    Metric(
        "committed_offset",
        "offset",
        "what was committed last",
        "far below `processing_offset`: commits fail, see the log",
    ),
    Metric(
        "processing_timestamp_seconds",
        "s since 1970",
        "about when the first record that is not done is from",
        "far in the past: a lag, or a stuck record",
    ),
    Metric(
        "queue_bytes",
        "bytes",
        "bytes of its records that wait or are in process",
        "large in one partition alone: its keys are slow",
    ),
    Metric(
        "uncommitted",
        "records",
        "its records that are done, after one that is not",
        "large: a record is stuck",
    ),
    Metric(
        "lag_records",
        "records",
        "offsets from the first record that is not done to its end",
        "one far above the others: a hot key, or a paused partition",
    ),
    Metric(
        "lag_seconds",
        "s",
        "age of its first record that is not done",
        "as of the instance",
    ),
)
"""Of one partition of an instance; at /metrics ``headrace_worker_partition_<name>``."""

MIRROR_METRICS = (
    Metric(
        "records",
        "records",
        "records that were copied and committed",
        "standing still with a lag: the log says which site does not respond",
        is_counter=True,
    ),
    Metric(
        "value_bytes",
        "bytes",
        "bytes of their values",
        "close to what the link between the sites carries: the lag grows",
        is_counter=True,
    ),
    Metric(
        "loops_skipped",
        "records",
        "records that have been at one of the two sites before, and were not sent",
        "rising between sites that do not mirror each other: look for a way back through others",
        is_counter=True,
    ),
    Metric(
        "restarts",
        "restarts",
        "times that the instance gave its transaction up and started over from what is committed",
        "rising: the log says why; a few with each deploy or election are normal",
        is_counter=True,
    ),
    Metric(
        "partitions",
        "partitions",
        "partitions that it copies",
        "0 for long: there are more instances than partitions, or all are refused",
    ),
    Metric(
        "refused_partitions",
        "partitions",
        "its partitions that can't be copied on",
        "above 0: `headrace mirror list` says why, and what to do",
    ),
    Metric(
        "lag_records",
        "records",
        "offsets from the next record to the end of the partitions that it copies",
        "rising: more arrives than is copied; more instances, or a faster link",
    ),
)
"""Of one instance of a mirror; at /metrics ``headrace_mirror_<name>``, counts with ``_total``."""

MIRROR_PARTITION_METRICS = (
    Metric(
        "lag_records",
        "records",
        "offsets from the next record of the source's partition to its end, as of the last fetch",
        "one far above the others: most records go to that partition",
    ),
    Metric(
        "refused",
        "1 or 0",
        "it can't be copied on",
        "1: `headrace mirror list` says why, and what to do",
    ),
)
"""Of one partition of the source; at /metrics ``headrace_mirror_partition_<name>``."""

MERGER_METRICS = (
    Metric(
        "records",
        "records",
        "records that were merged into the target and committed",
        "standing still with a lag: `waits_for` in `headrace status --json` says for which source",
        is_counter=True,
    ),
    Metric(
        "value_bytes",
        "bytes",
        "bytes of the values of all records that were written, late ones included",
        "rising faster than records: records have become larger",
        is_counter=True,
    ),
    Metric(
        "late",
        "records",
        "records in the topic `late`: they could not be put in order",
        "rising: the header `headrace-late` of those records says why",
        is_counter=True,
    ),
    Metric(
        "restarts",
        "restarts",
        "times that the instance gave its transaction up and started over from what is committed",
        "rising: the log says why; a few with each deploy or election are normal",
        is_counter=True,
    ),
    Metric(
        "partitions",
        "partitions",
        "partitions of sources that it reads",
        "0 for long: there are more instances than partitions, or all are refused",
    ),
    Metric(
        "refused_partitions",
        "partitions",
        "partitions of the target that it can't go on with",
        "above 0: `headrace merger list` says why, and what to do",
    ),
    Metric(
        "lag_records",
        "records",
        "offsets from the first record that is not written to the end of the sources",
        "rising: more arrives than is merged, or a source is waited for",
    ),
    Metric(
        "waiting_partitions",
        "partitions",
        "partitions of the target whose records wait for a source",
        "above 0 for long: a site is cut off or silent; `waits_for` names the source",
    ),
    Metric(
        "idle_partitions",
        "partitions",
        "partitions of sources that are silent, and not waited for",
        "above 0: what they send later may be late",
    ),
    Metric(
        "sorted_to_age_seconds",
        "s",
        "age of the time up to which the most delayed waiting partition is written; 0: none waits",
        "rising: a source is waited for",
    ),
)
"""Of one instance of a merger; at /metrics ``headrace_merger_<name>``, counts with ``_total``."""

MERGER_PARTITION_METRICS = (
    Metric(
        "lag_records",
        "records",
        "offsets of a source's partition from the first that is not written to its end",
        "one far above the others: its records wait for another source",
    ),
    Metric(
        "refused",
        "1 or 0",
        "the partition of the target can't be gone on with",
        "1: `headrace merger list` says why, and what to do",
    ),
)
"""Of one partition; at /metrics ``headrace_merger_partition_<name>``."""

DISPATCHER_METRICS = (
    Metric(
        "records",
        "records",
        "records that were sent, over all targets; they are at the target",
        "standing still while `read` rises: nothing is routed to the targets",
        is_counter=True,
    ),
    Metric(
        "read",
        "records",
        "records that were read, once for each target",
        "standing still with a lag: the source's site does not respond",
        is_counter=True,
    ),
    Metric(
        "restarts",
        "restarts",
        "times that the query of a target was started again",
        "rising: the log says why; one for each outage of a site is normal",
        is_counter=True,
    ),
    Metric(
        "waiting_sites",
        "sites",
        "targets that get nothing now",
        "above 0: `headrace status` says why",
    ),
    Metric(
        "refused_partitions",
        "partitions",
        "partitions that can't be gone on with, counted at each target",
        "above 0: `headrace dispatcher list` says why, and what to do",
    ),
    Metric(
        "lag_records",
        "records",
        "offsets from the committed positions to the end of the source, over all targets",
        "above what comes in during `commit_every`: a target is away, or more arrives than is sent",
    ),
)
"""Of one instance of a dispatcher; at /metrics ``headrace_dispatcher_<name>``, counts with
``_total``."""

DISPATCHER_PARTITION_METRICS = (
    Metric(
        "lag_records",
        "records",
        "offsets from the committed position to the end of the source's partition, by target",
        "one far above the others: most records go to that partition",
    ),
    Metric(
        "refused",
        "1 or 0",
        "it can't be gone on with to that target",
        "1: `headrace dispatcher list` says why, and what to do",
    ),
)
"""Of one partition and target; at /metrics ``headrace_dispatcher_partition_<name>``."""

DISPATCHER_SITE_METRICS = (
    Metric(
        "records",
        "records",
        "records that were sent to the target",
        "standing still while those of other targets rise: it is away, or nothing is for it",
        is_counter=True,
    ),
    Metric(
        "lag_records",
        "records",
        "offsets from the committed positions to the end of the source",
        "above what comes in during `commit_every`: it is away, or more arrives than is sent",
    ),
    Metric(
        "waiting",
        "1 or 0",
        "it gets nothing now",
        "1: `headrace status` says why",
    ),
    Metric(
        "commit_age_seconds",
        "s",
        "age of the last commit of the target's position",
        "above twice `commit_every`: the site does not respond, or the query stands still",
    ),
)
"""Of one target; at /metrics ``headrace_dispatcher_site_<name>``, counts with ``_total``."""

QUERY_METRICS = (
    Metric(
        "records",
        "records",
        "matched records that were added up",
        "standing still while events come: see the state, and the pipelines of `MatchQueries`",
        is_counter=True,
    ),
    Metric(
        "results",
        "results",
        "results that were written to the topic of results",
        "standing still while `records` rises: `behind_seconds` says how far event time is",
        is_counter=True,
    ),
    Metric(
        "late_events",
        "events",
        "events of its partitions that came for windows that had ended, of all queries; it goes on"
        " over restarts",
        "rising: `ALLOWED LATENESS` of the queries is too short, or a producer is behind",
    ),
    Metric(
        "unbalanced_events",
        "events",
        "matches of its partitions that are missing or too many, by the counts that it has"
        " written last, at least every 5 s",
        "above 0: `headrace reconcile` says in which partitions and at which hop",
    ),
    Metric(
        "windows",
        "windows",
        "windows that have not ended",
        "rising without end: event time stands still, or queries have too many groups",
    ),
    Metric(
        "partitions",
        "partitions",
        "partitions that it has",
        "0: it is a spare, or it waits for the brokers, as its `reason` says",
    ),
    Metric(
        "uncovered_partitions",
        "partitions",
        "partitions that no instance has, as this one sees it",
        "above 0: start more instances; `headrace query instances` shows which are missing",
    ),
    Metric(
        "faulty_queries",
        "queries",
        "queries whose records can't be added up",
        "above 0: `faulty` in `headrace status --json` has the reasons; restart instances after"
        " an event class has changed",
    ),
)
"""Of one instance of standing queries; at /metrics ``headrace_queries_<name>``, counts with
``_total``."""

MATCHED_EVENTS_METRICS = (
    Metric(
        "records",
        "records",
        "matched events that were sent, as far as their positions are committed",
        "standing still while `read` rises: no event matches",
        is_counter=True,
    ),
    Metric(
        "read",
        "events",
        "offsets of events that were looked at; counted where positions are committed: every five "
        "minutes, and up to the last event that was sent where queries change or the process ends",
        "standing still while events come: see the state and its reason",
        is_counter=True,
    ),
    Metric(
        "restarts",
        "restarts",
        "times that the query of Spark failed and was started again",
        "rising: the log says why",
        is_counter=True,
    ),
    Metric(
        "queries",
        "queries",
        "live queries with `MATCHED EVENTS EMIT`",
        "not as many as you have registered: `headrace query list` says which are live",
    ),
    Metric(
        "lag_records",
        "records",
        "offsets from the committed positions to the end of the topic: `since commit` in `status`",
        "above what comes in ten minutes: it is too slow, or stands still",
    ),
)
"""Of a process that sends matched events; at /metrics ``headrace_matched_events_<name>``, counts
with ``_total``."""

QUERY_TOPIC_METRICS = (
    Metric(
        "behind_seconds",
        "s",
        "how far the time of the topic's events is behind the clock; below 0: ahead of it",
        "rising: events are late, or the pipeline that matches them stands still",
    ),
)
"""Of one topic of events; at /metrics ``headrace_queries_topic_<name>``."""
