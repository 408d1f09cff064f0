"""A status of each kind of services, as one that runs writes it."""

from __future__ import annotations

from headrace.links.dispatcher.status import DispatcherStatus, RouteStatus
from headrace.links.merger.status import MergerStatus
from headrace.links.mirror.status import MirrorStatus
from headrace.pipelines.status import PipelineStatus
from headrace.queries.emit.status import EmitterStatus
from headrace.queries.windows.instance.status import QueryInstanceStatus
from headrace.service.status import State
from headrace.workers.status import PartitionStatus, WorkerStatus

NOW_MS = 1_800_000_000_000
MIRROR = MirrorStatus(
    "warsaw",
    instance="host-1",
    records=100,
    value_bytes=2_000,
    loops_skipped=3,
    restarts=1,
    lags={"clicks/0": 7, "clicks/1": None},
    refused={"clicks/2": "records were deleted"},
    updated_ms=NOW_MS,
)
MERGER = MergerStatus(
    "clicks",
    instance="host-1",
    records=100,
    late=3,
    lags={"waw.clicks/0": 7, "waw.clicks/1": None},
    sorted_to_ms={"clicks/0": NOW_MS - 2_500, "clicks/1": None},
    waits_for={"clicks/0": ["par.clicks/0"], "clicks/1": []},
    idle=["lyo.clicks/0"],
    refused={"clicks/2": "a source has lost records"},
    updated_ms=NOW_MS,
)
WAW = RouteStatus(
    "waw",
    State.RUNNING,
    read=100,
    records=60,
    restarts=1,
    committed_ms=1_000,
    lags={"clicks/0": 3, "clicks/1": 4},
)
PAR = RouteStatus("par", State.WAITING, "site par does not respond", refused={"clicks/1": "a gap"})
DISPATCHER = DispatcherStatus(
    "d",
    instance="host-1",
    records=60,
    read=100,
    restarts=1,
    lags={"waw/clicks/0": 3, "waw/clicks/1": 4},
    refused={"par/clicks/1": "a gap"},
    sites={"waw": WAW, "par": PAR},
    updated_ms=NOW_MS,
)
EMITTER = EmitterStatus(
    "ads.clicks", instance="host-1", records=3, read=7, queries=2, rules="a1", updated_ms=NOW_MS
)
QUERIES = QueryInstanceStatus(
    "ads",
    instance="host-1",
    records=100,
    results=7,
    windows=3,
    owned=(0, 1),
    uncovered=(5,),
    late={"a": 2, "b": 3},
    unbalanced={"clicks": 4, "views": 0},
    faulty={"c": "no field 'price'"},
    updated_ms=NOW_MS,
    event_ms={"clicks": NOW_MS - 1_500},
)
PIPELINE = PipelineStatus(
    "clicks",
    State.RUNNING,
    rows_in=12,
    batch_seconds=0.25,
    idle_partitions=("t[0]",),
    figures={"files_written": 4, "compaction_failure": "the disk is full"},
    updated_ms=NOW_MS,
)
PARTITION = PartitionStatus(
    "clicks", 1, ("requested",), 120, 100, 90, 1_700_000_000_500, 2048, 7, 33, 1.25
)
WORKER = WorkerStatus(
    "enrich",
    State.RUNNING,
    instance="host-1",
    processed=12,
    lag_seconds=1.25,
    paused_partitions={"clicks/1": ("requested", "lane")},
    updated_ms=NOW_MS,
    own=[PARTITION],
)
INSTANCES = [MIRROR, MERGER, DISPATCHER, EMITTER, QUERIES, WORKER]
STATUSES = [*INSTANCES, PIPELINE]
