"""One status of each kind of service, every field with a value of its own.

The golden files hold how they look in JSON, on the disk and in metrics. What builds a status is
only here: a class that moves or is built otherwise changes this module and no golden file.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.links.dispatcher.status import DispatcherStatus, RouteStatus
from headrace.links.merger.status import MergerStatus
from headrace.links.mirror.status import MirrorStatus
from headrace.offline_files.status import LoaderStatus
from headrace.pipelines.standby.status import DriverStatus
from headrace.pipelines.status import PipelineStatus
from headrace.queries.emit.status import EmitterStatus
from headrace.queries.windows.instance.status import QueryInstanceStatus
from headrace.service.status import ServiceStatus, State
from headrace.workers.status import PartitionStatus, WorkerStatus

NOW_MS = 1_800_000_000_000
_INSTANCE = "host-1"

PIPELINE = PipelineStatus(
    "clicks",
    state=State.RUNNING,
    reason="the broker does not respond",
    batch_id=41,
    batches=7,
    rows_in=1_001,
    rows_out=1_002,
    late_rows=3,
    late_side_rows=4,
    late_dead_letters=5,
    duplicate_rows=6,
    behind_watermark_rows=7,
    dropped_by_watermark_rows=8,
    dead_letters=9,
    tombstones=10,
    replays_skipped=11,
    records_per_second=12.5,
    batch_seconds=0.25,
    backlog_records=13,
    backlog_seconds=1.75,
    idle_partitions=("clicks[1]",),
    paused_partitions=("clicks[2]",),
    restarts=14,
    exit_code=0,
    figures={"files_written": 15, "compaction_failure": "the disk is full"},
    updated_ms=NOW_MS,
)
STARTING_PIPELINE = PipelineStatus("views", updated_ms=NOW_MS)
FAILED_PIPELINE = PipelineStatus(
    "sales", state=State.FAILED, reason="no disk", exit_code=1, updated_ms=NOW_MS
)

MIRROR = MirrorStatus(
    "warsaw",
    state=State.RUNNING,
    instance=_INSTANCE,
    reason="site waw does not respond",
    records=100,
    value_bytes=2_000,
    restarts=1,
    lags={"clicks/0": 7, "clicks/1": None},
    refused={"clicks/2": "records were deleted"},
    updated_ms=NOW_MS,
    loops_skipped=3,
)

MERGER = MergerStatus(
    "clicks",
    state=State.WAITING,
    instance=_INSTANCE,
    reason="the brokers do not respond",
    records=100,
    value_bytes=2_000,
    restarts=1,
    lags={"waw.clicks/0": 7, "waw.clicks/1": None},
    refused={"clicks/2": "a source has lost records"},
    updated_ms=NOW_MS,
    late=3,
    sorted_to_ms={"clicks/0": NOW_MS - 2_500, "clicks/1": None},
    waits_for={"clicks/0": ["par.clicks/0"], "clicks/1": []},
    idle=["lyo.clicks/0"],
)

DISPATCHER = DispatcherStatus(
    "sites",
    state=State.RUNNING,
    instance=_INSTANCE,
    reason="",
    records=60,
    value_bytes=0,
    restarts=1,
    lags={"waw/clicks/0": 3, "waw/clicks/1": 4},
    refused={"par/clicks/1": "a gap"},
    updated_ms=NOW_MS,
    read=100,
    sites={
        "waw": RouteStatus(
            "waw",
            State.RUNNING,
            read=100,
            records=60,
            restarts=1,
            committed_ms=NOW_MS - 4_500,
            lags={"clicks/0": 3, "clicks/1": 4},
        ),
        "par": RouteStatus(
            "par", State.REFUSED, "no partition is ready", refused={"clicks/1": "a gap"}
        ),
    },
)

EMITTER = EmitterStatus(
    "ads",
    state=State.FAILED,
    instance=_INSTANCE,
    reason="the topic was recreated",
    records=100,
    value_bytes=2_000,
    restarts=1,
    lags={"clicks/0": 7},
    refused={},
    updated_ms=NOW_MS,
    read=500,
    queries=12,
    registry_offset=33,
    rules="9f3c",
)

QUERIES = QueryInstanceStatus(
    "ads",
    state=State.RUNNING,
    instance=_INSTANCE,
    reason="",
    records=100,
    results=7,
    windows=3,
    owned=(0, 1),
    uncovered=(5,),
    late={"a": 2, "b": 3},
    unbalanced={"clicks": 4, "views": 0},
    event_ms={"clicks": NOW_MS - 1_500},
    faulty={"c": "no field 'price'"},
    updated_ms=NOW_MS,
)

WORKER = WorkerStatus(
    "enrich",
    State.RUNNING,
    instance=_INSTANCE,
    processed=1,
    failed=2,
    retried=3,
    timed_out=4,
    skipped=5,
    dead_letters=6,
    tombstones=7,
    replays_skipped=8,
    commits=9,
    rebalances=10,
    rejected_references=22,
    partitions=11,
    lanes=12,
    in_process=13,
    waiting=14,
    blocked=15,
    starved=16,
    queue_bytes=17,
    queue_limit_bytes=18,
    lane_limit_bytes=19,
    uncommitted=20,
    processing_seconds=0.5,
    lag_records=21,
    lag_seconds=1.25,
    reference_keys=23,
    reference_bytes=24,
    references_behind=25,
    state_keys=26,
    state_bytes=27,
    state_restoring=28,
    paused_partitions={"clicks/1": ("lane", "requested")},
    process="host-4711",
    updated_ms=NOW_MS,
)
ENDED_WORKER = WorkerStatus(
    "enrich", State.CLOSED, instance=_INSTANCE, processed=1, updated_ms=NOW_MS
)
WORKER_PARTITIONS = (
    PartitionStatus(
        "clicks",
        1,
        ("lane", "requested"),
        consumed_offset=120,
        processing_offset=100,
        committed_offset=90,
        processing_timestamp_ms=NOW_MS - 1_250,
        queue_bytes=2_048,
        uncommitted=7,
        lag_records=33,
        lag_seconds=1.25,
    ),
)

LOADER = LoaderStatus(
    "api-1",
    State.WAITING,
    instance=_INSTANCE,
    reason="offline.3: Permission denied",
    loaded=1,
    dead_letters=2,
    skipped=3,
    backwards=4,
    retries=5,
    files=6,
    files_waiting=7,
    lag_seconds=8.5,
    missing_counters=9,
    updated_ms=NOW_MS,
)

DRIVER = DriverStatus(
    "impressions-to-lake",
    State.WAITING,
    instance=_INSTANCE,
    reason="a driver on host-1 runs it",
    takeovers=1,
    warm_age_seconds=2.5,
    updated_ms=NOW_MS,
)

OF_KIND: Mapping[str, tuple[ServiceStatus, ...]] = {
    "pipelines": (PIPELINE, FAILED_PIPELINE, STARTING_PIPELINE),
    "drivers": (DRIVER,),
    "workers": (WORKER,),
    "mirrors": (MIRROR,),
    "mergers": (MERGER,),
    "dispatchers": (DISPATCHER,),
    "queries": (QUERIES,),
    "matched_events": (EMITTER,),
    "loaders": (LOADER,),
}
"""By their names in the JSON of ``headrace status``: a kind that is missing fails the tests."""
