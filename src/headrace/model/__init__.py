"""The words: frozen values that declare a project. Standard library only."""

from headrace.model.event import (
    EpochMillis,
    EventField,
    EventSchema,
    FieldType,
    UnsupportedFieldError,
    event_schema,
)
from headrace.model.pipeline import (
    BatchLimits,
    DeadLetterLimit,
    Lake,
    Metadata,
    Pipeline,
    Source,
    Start,
    Step,
    TimeUnit,
    UnsafeValues,
)
from headrace.model.record import DeadLetter, OffsetRange, TopicPartition
from headrace.model.topic import DEAD_LETTERS_SUFFIX, Topic

__all__ = [
    "DEAD_LETTERS_SUFFIX",
    "BatchLimits",
    "DeadLetter",
    "DeadLetterLimit",
    "EpochMillis",
    "EventField",
    "EventSchema",
    "FieldType",
    "Lake",
    "Metadata",
    "OffsetRange",
    "Pipeline",
    "Source",
    "Start",
    "Step",
    "TimeUnit",
    "Topic",
    "TopicPartition",
    "UnsafeValues",
    "UnsupportedFieldError",
    "event_schema",
]
