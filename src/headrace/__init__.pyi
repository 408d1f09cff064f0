from .errors import (
    EventRejectedError,
    EventsNotDeliveredError,
    HeadraceError,
    SinkError,
    SinkUnavailableError,
    TableMismatchError,
)
from .ingest.producing.event_producer import EventProducer
from .kafka.origin import Origin
from .links.dispatcher.declaration import Dispatcher, DispatchMode, Home
from .links.merger.declaration import Merger
from .links.mirror.declaration import Mirror
from .metrics import Metric
from .model import (
    ArrayEnvelope,
    Avro,
    BatchLimits,
    ByAccount,
    ByField,
    ByHash,
    ByKey,
    ByShard,
    DeadLetterLimit,
    Envelope,
    EpochMillis,
    Guarantee,
    Json,
    JsonSchema,
    LinesEnvelope,
    Metadata,
    ObjectEnvelope,
    Precision,
    Protobuf,
    Random,
    Raw,
    RecordMetadata,
    Source,
    Spread,
    Start,
    Topic,
)
from .model.fault import Fault
from .pipelines.declaration import Pipeline
from .pipelines.join.declaration import Join, Match
from .pipelines.late_data.declaration import LateData
from .pipelines.transforms.classify import classify
from .pipelines.transforms.count_windows import count_windows
from .pipelines.transforms.deduplicate import deduplicate
from .pipelines.transforms.enrich import enrich
from .pipelines.transforms.fan_out import fan_out
from .pipelines.transforms.filter_rows import filter_rows
from .pipelines.transforms.transform import Transform
from .program import Project
from .queries.declaration import StandingQueries
from .queries.emit.matched_event import MatchedEvent
from .queries.match.sink import MatchQueries
from .queries.records.result import QueryResult, ResultKind
from .queries.registry.record import RegisteredQuery
from .queries.registry.registrations import QueryEntry, QueryState
from .queries.results.explanation import QueryExplanation
from .settings import Secret
from .sinks.api import (
    CommitRejection,
    CommitResult,
    DeclaredRows,
    OnNull,
    PositionStore,
    RejectedRow,
    RejectedValues,
    Sink,
    SinkContext,
    SinkDriver,
    TaskWriter,
    Transaction,
)
from .sinks.bigquery.declaration import BigQuery
from .sinks.kafka.declaration import Kafka
from .sinks.lake.declaration import Lake
from .sinks.lake.delta.declaration import Delta
from .sinks.lake.iceberg.declaration import Iceberg
from .sinks.lake.layout import UnsafeValues
from .sinks.opensearch.declaration import OpenSearch
from .sinks.postgres.declaration import Postgres
from .sinks.postgres.servers.by_server import ByServer
from .sinks.postgres.stats.declaration import Stats
from .sinks.postgres.stats.measures import Count, Distinct, Sum
from .sinks.profiles.declaration import Profiles
from .sinks.profiles.latest import Latest
from .sinks.profiles.store import Profile, ProfileEntry, ProfileField
from .sinks.unique.declaration import Unique
from .sinks.write_mode import WriteMode
from .workers import (
    BatchWorkerTask,
    DeadLetters,
    InvalidRecordError,
    KeyHash,
    KeyState,
    KeyTimers,
    OneToOne,
    RecordStatusObserver,
    References,
    Retry,
    RetryTopics,
    RoundRobin,
    Send,
    Skip,
    Stop,
    Timer,
    Worker,
    WorkerPartitioner,
    WorkerRecord,
    WorkerSubpartition,
    WorkerTask,
    worker,
)

__version__: str

__all__ = [
    "ArrayEnvelope",
    "Avro",
    "BatchLimits",
    "BatchWorkerTask",
    "BigQuery",
    "ByAccount",
    "ByField",
    "ByHash",
    "ByKey",
    "ByServer",
    "ByShard",
    "CommitRejection",
    "CommitResult",
    "Count",
    "DeadLetterLimit",
    "DeadLetters",
    "DeclaredRows",
    "Delta",
    "DispatchMode",
    "Dispatcher",
    "Distinct",
    "Envelope",
    "EpochMillis",
    "EventProducer",
    "EventRejectedError",
    "EventsNotDeliveredError",
    "Fault",
    "Guarantee",
    "HeadraceError",
    "Home",
    "Iceberg",
    "InvalidRecordError",
    "Join",
    "Json",
    "JsonSchema",
    "Kafka",
    "KeyHash",
    "KeyState",
    "KeyTimers",
    "Lake",
    "LateData",
    "Latest",
    "LinesEnvelope",
    "Match",
    "MatchQueries",
    "MatchedEvent",
    "Merger",
    "Metadata",
    "Metric",
    "Mirror",
    "ObjectEnvelope",
    "OnNull",
    "OneToOne",
    "OpenSearch",
    "Origin",
    "Pipeline",
    "PositionStore",
    "Postgres",
    "Precision",
    "Profile",
    "ProfileEntry",
    "ProfileField",
    "Profiles",
    "Project",
    "Protobuf",
    "QueryEntry",
    "QueryExplanation",
    "QueryResult",
    "QueryState",
    "Random",
    "Raw",
    "RecordMetadata",
    "RecordStatusObserver",
    "References",
    "RegisteredQuery",
    "RejectedRow",
    "RejectedValues",
    "ResultKind",
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
    "StandingQueries",
    "Start",
    "Stats",
    "Stop",
    "Sum",
    "TableMismatchError",
    "TaskWriter",
    "Timer",
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
