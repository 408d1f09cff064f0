"""headrace: real-time event pipelines in Python, on Kafka and PySpark."""

from headrace.model import (
    BatchLimits,
    ByAccount,
    ByField,
    ByHash,
    ByKey,
    ByShard,
    DeadLetterLimit,
    EpochMillis,
    Lake,
    Metadata,
    Pipeline,
    Random,
    Source,
    Spread,
    Start,
    Topic,
    UnsafeValues,
)

__version__ = "0.1.0"

__all__ = [
    "BatchLimits",
    "ByAccount",
    "ByField",
    "ByHash",
    "ByKey",
    "ByShard",
    "DeadLetterLimit",
    "EpochMillis",
    "Lake",
    "Metadata",
    "Pipeline",
    "Random",
    "Source",
    "Spread",
    "Start",
    "Topic",
    "UnsafeValues",
]
