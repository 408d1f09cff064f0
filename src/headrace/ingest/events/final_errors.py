"""Which of Kafka's answers are final."""

from __future__ import annotations

from confluent_kafka import KafkaError

from headrace.kafka.broker_errors import RECORD_REJECTIONS

REJECTIONS = RECORD_REJECTIONS | {
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
}
"""Said of a record or its topic: what a request brings is not taken into the spool then."""

MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - Kafka's name of it
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    }
)
"""The topic or the partition is not there; a broker that has just started may say so wrongly."""
