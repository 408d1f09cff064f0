"""The words: frozen values that declare a project. Standard library only."""

from headrace.model.event import (
    EpochMillis,
    EventField,
    EventSchema,
    FieldType,
    Precision,
    UnsupportedFieldError,
    declaring_class,
    event_schema,
    readable_schema,
    value_at,
)
from headrace.model.format import Format, Json, Raw
from headrace.model.partitioning import (
    ByAccount,
    ByField,
    ByHash,
    ByKey,
    ByShard,
    Partition,
    Partitioning,
    Random,
    Spread,
    partition_of,
)
from headrace.model.record import DeadLetter, OffsetRange, TopicPartition
from headrace.model.source import (
    BatchLimits,
    DeadLetterLimit,
    Metadata,
    Source,
    Start,
)
from headrace.model.topic import DEAD_LETTERS_SUFFIX, MAX_TOPIC_NAME_LENGTH, TOPIC_NAME, Topic

__all__ = [
    "DEAD_LETTERS_SUFFIX",
    "MAX_TOPIC_NAME_LENGTH",
    "TOPIC_NAME",
    "BatchLimits",
    "ByAccount",
    "ByField",
    "ByHash",
    "ByKey",
    "ByShard",
    "DeadLetter",
    "DeadLetterLimit",
    "EpochMillis",
    "EventField",
    "EventSchema",
    "FieldType",
    "Format",
    "Json",
    "Metadata",
    "OffsetRange",
    "Partition",
    "Partitioning",
    "Precision",
    "Random",
    "Raw",
    "Source",
    "Spread",
    "Start",
    "Topic",
    "TopicPartition",
    "UnsupportedFieldError",
    "declaring_class",
    "event_schema",
    "partition_of",
    "readable_schema",
    "value_at",
]
