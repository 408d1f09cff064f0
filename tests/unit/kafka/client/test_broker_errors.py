"""Each error of Kafka has one meaning, whoever meets it."""

from collections import Counter

import pytest
from confluent_kafka import KafkaError

from headrace.kafka.client.broker_errors import (
    Meaning,
    is_final_for_topic,
    is_of_record,
    meaning,
    names,
)


def test_no_error_has_two_meanings():
    listed = Counter(name for one in Meaning if one is not Meaning.PERMANENT for name in names(one))
    assert [name for name, times in listed.items() if times > 1] == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._PARTITION_EOF, Meaning.END),
        (KafkaError._MSG_TIMED_OUT, Meaning.UNREACHABLE),
        (KafkaError._TRANSPORT, Meaning.UNREACHABLE),
        (KafkaError.NOT_COORDINATOR, Meaning.TRANSIENT),
        (KafkaError._UNKNOWN_TOPIC, Meaning.MISSING),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, Meaning.FORBIDDEN),
        (KafkaError._AUTO_OFFSET_RESET, Meaning.NO_RECORD),
        (KafkaError._LOG_TRUNCATION, Meaning.TRUNCATED),
        (KafkaError._BAD_MSG, Meaning.DAMAGED),
        (KafkaError.MSG_SIZE_TOO_LARGE, Meaning.INVALID_RECORD),
        (KafkaError.RECORD_LIST_TOO_LARGE, Meaning.INVALID_RECORD),
        (KafkaError.INVALID_RECORD, Meaning.INVALID_RECORD),
        (KafkaError.INVALID_TIMESTAMP, Meaning.INVALID_RECORD),
        (KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT, Meaning.INVALID_RECORD),
        (KafkaError.POLICY_VIOLATION, Meaning.INVALID_TOPIC),
        (KafkaError.TOPIC_EXCEPTION, Meaning.INVALID_TOPIC),
        (KafkaError._PURGE_QUEUE, Meaning.PURGED),
        (KafkaError._PURGE_INFLIGHT, Meaning.PURGED),
        (KafkaError._FENCED, Meaning.FENCED),
        (KafkaError.INVALID_PRODUCER_EPOCH, Meaning.FENCED),
        (KafkaError.ILLEGAL_GENERATION, Meaning.REBALANCING),
        (KafkaError.REBALANCE_IN_PROGRESS, Meaning.REBALANCING),
        (KafkaError.UNKNOWN_MEMBER_ID, Meaning.EVICTED),
        (KafkaError._MAX_POLL_EXCEEDED, Meaning.EVICTED),
        (KafkaError.FENCED_INSTANCE_ID, Meaning.ID_IN_USE),
        (KafkaError.GROUP_ID_NOT_FOUND, Meaning.NO_GROUP),
        (KafkaError.OFFSET_METADATA_TOO_LARGE, Meaning.METADATA_TOO_LARGE),
        (KafkaError._FATAL, Meaning.FATAL),
        (KafkaError.INVALID_REQUIRED_ACKS, Meaning.PERMANENT),
    ],
)
def test_what_follows_from_an_error(code, expected):
    assert meaning(KafkaError(code)) is expected


@pytest.mark.parametrize(
    ("code", "of_record", "final"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, True, True),
        (KafkaError.POLICY_VIOLATION, False, True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False, True),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, False, False),
        (KafkaError._MSG_TIMED_OUT, False, False),
    ],
)
def test_what_no_retry_of_a_record_can_cure(code, of_record, final):
    assert is_of_record(KafkaError(code)) is of_record
    assert is_final_for_topic(KafkaError(code)) is final
