"""headrace: real-time event pipelines in Python, on Kafka and PySpark."""

from typing import TYPE_CHECKING, Any

from headrace.dispatcher.declaration import Dispatcher, DispatchMode, Home
from headrace.errors import (
    EventRejectedError,
    EventsNotDeliveredError,
    HeadraceError,
    SinkError,
    SinkUnavailableError,
    TableMismatchError,
)
from headrace.merger.declaration import Merger
from headrace.metrics import Metric
from headrace.mirror.declaration import Mirror
from headrace.model import (
    Avro,
    BatchLimits,
    ByAccount,
    ByField,
    ByHash,
    ByKey,
    ByShard,
    DeadLetterLimit,
    EpochMillis,
    Json,
    Metadata,
    Precision,
    Random,
    Raw,
    Source,
    Spread,
    Start,
    Topic,
)
from headrace.model.fault import Fault
from headrace.pipelines.join.declaration import Join, Match
from headrace.pipelines.late_data.declaration import LateData
from headrace.pipelines.pipeline import Pipeline
from headrace.pipelines.transforms.classify import classify
from headrace.pipelines.transforms.count_windows import count_windows
from headrace.pipelines.transforms.deduplicate import deduplicate
from headrace.pipelines.transforms.enrich import enrich
from headrace.pipelines.transforms.fan_out import fan_out
from headrace.pipelines.transforms.filter_rows import filter_rows
from headrace.pipelines.transforms.transform import Transform
from headrace.settings import Secret
from headrace.sinks.api import (
    CommitRejection,
    CommitResult,
    DeclaredRows,
    Guarantee,
    PositionStore,
    RejectedRow,
    RejectedValues,
    Sink,
    SinkContext,
    SinkDriver,
    TaskWriter,
    Transaction,
)
from headrace.sinks.kafka.declaration import Kafka
from headrace.sinks.lake.declaration import Lake
from headrace.sinks.lake.layout import UnsafeValues
from headrace.sinks.lake.unique.declaration import Unique
from headrace.sinks.postgres.declaration import Postgres, WriteMode
from headrace.sinks.postgres.stats.declaration import Stats
from headrace.sinks.postgres.stats.measures import Count, Distinct, Sum
from headrace.sinks.profiles.declaration import Profiles
from headrace.sinks.profiles.latest import Latest
from headrace.sinks.profiles.store import Profile, ProfileEntry, ProfileField
from headrace.workers import (
    BatchWorkerTask,
    DeadLetters,
    InvalidRecordError,
    KeyHash,
    OneToOne,
    RecordStatusObserver,
    Retry,
    RetryTopics,
    RoundRobin,
    Send,
    Skip,
    Stop,
    Worker,
    WorkerPartitioner,
    WorkerRecord,
    WorkerSubpartition,
    WorkerTask,
    worker,
)

if TYPE_CHECKING:
    from headrace.control.event_producer import EventProducer
    from headrace.project import Project

__version__ = "0.1.0"

__all__ = [
    "Avro",
    "BatchLimits",
    "BatchWorkerTask",
    "ByAccount",
    "ByField",
    "ByHash",
    "ByKey",
    "ByShard",
    "CommitRejection",
    "CommitResult",
    "Count",
    "DeadLetterLimit",
    "DeadLetters",
    "DeclaredRows",
    "DispatchMode",
    "Dispatcher",
    "Distinct",
    "EpochMillis",
    "EventProducer",
    "EventRejectedError",
    "EventsNotDeliveredError",
    "Fault",
    "Guarantee",
    "HeadraceError",
    "Home",
    "InvalidRecordError",
    "Join",
    "Json",
    "Kafka",
    "KeyHash",
    "Lake",
    "LateData",
    "Latest",
    "Match",
    "Merger",
    "Metadata",
    "Metric",
    "Mirror",
    "OneToOne",
    "Pipeline",
    "PositionStore",
    "Postgres",
    "Precision",
    "Profile",
    "ProfileEntry",
    "ProfileField",
    "Profiles",
    "Project",
    "Random",
    "Raw",
    "RecordStatusObserver",
    "RejectedRow",
    "RejectedValues",
    "Retry",
    "RetryTopics",
    "RoundRobin",
    "Secret",
    "Send",
    "Sink",
    "SinkContext",
    "SinkDriver",
    "SinkError",
    "SinkUnavailableError",
    "Skip",
    "Source",
    "Spread",
    "Start",
    "Stats",
    "Stop",
    "Sum",
    "TableMismatchError",
    "TaskWriter",
    "Topic",
    "Transaction",
    "Transform",
    "Unique",
    "UnsafeValues",
    "Worker",
    "WorkerPartitioner",
    "WorkerRecord",
    "WorkerSubpartition",
    "WorkerTask",
    "WriteMode",
    "classify",
    "count_windows",
    "deduplicate",
    "enrich",
    "fan_out",
    "filter_rows",
    "worker",
]


def __getattr__(name: str) -> Any:
    """Returns what connects to Kafka, when it is asked for: declaring needs no client."""
    if name == "Project":
        from headrace.project import Project

        return Project
    if name == "EventProducer":
        from headrace.control.event_producer import EventProducer

        return EventProducer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
