"""headrace: real-time event pipelines in Python, on Kafka and PySpark."""

from headrace.model import (
    BatchLimits,
    DeadLetterLimit,
    EpochMillis,
    Lake,
    Metadata,
    Pipeline,
    Source,
    Start,
    Topic,
    UnsafeValues,
)

__version__ = "0.1.0"

__all__ = [
    "BatchLimits",
    "DeadLetterLimit",
    "EpochMillis",
    "Lake",
    "Metadata",
    "Pipeline",
    "Source",
    "Start",
    "Topic",
    "UnsafeValues",
]
