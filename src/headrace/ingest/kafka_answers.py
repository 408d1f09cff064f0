"""Which of Kafka's answers are final."""

from __future__ import annotations

from confluent_kafka import KafkaError

RECORD_REFUSALS = frozenset(
    {
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""Said of a record itself: sending it again gives the same answer.

What somebody may put right (no login, no right to write, a policy, a topic that is gone, too few
replicas) is not here, nor is any answer we do not know: records that were acknowledged are sent
again until Kafka takes them. Delivery reports carry codes only; ``KafkaError.retriable()`` is false
for each of them.
"""

REFUSALS = RECORD_REFUSALS | {
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
