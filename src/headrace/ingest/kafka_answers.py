"""Which of Kafka's answers are final."""

from __future__ import annotations

from confluent_kafka import KafkaError

REFUSALS = frozenset(
    {
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""Said of a record or its topic: sending it again gives the same answer.

What is wrong with all records (no login, no right to be idempotent, too few replicas) is not here,
nor is any answer we do not know: such records are sent again until Kafka takes them. Delivery
reports carry codes only; ``KafkaError.retriable()`` is false for each of them.
"""

MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - Kafka's name of it
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    }
)
"""The topic or the partition is not there; a broker that has just started may say so wrongly."""
