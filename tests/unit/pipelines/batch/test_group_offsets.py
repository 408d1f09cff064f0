import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import AuthorizationError, BrokerUnreachableError
from headrace.model import TopicPartition
from headrace.pipelines.batch import group_offsets
from headrace.pipelines.batch.group_offsets import GroupOffsets

POSITIONS = {TopicPartition("clicks", 0): 7}
EPOCHS = {TopicPartition("clicks", 0): 3}
REFUSALS = [
    KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)),
    KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID)),
    BrokerUnreachableError("localhost:9092", "timed out"),
    AuthorizationError("READ", "group headrace.clicks", "User:me"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda one: type(one).__name__)
def test_a_group_that_does_not_take_offsets_fails_nothing_and_is_named_once(
    refusal, monkeypatch, caplog
):
    def refuse(*_):
        raise refusal

    monkeypatch.setattr(group_offsets, "commit_offsets", refuse)
    group = GroupOffsets({}, "headrace.clicks")
    for _ in range(3):
        group.show(POSITIONS, EPOCHS)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "operation READ on group headrace.clicks" in caplog.text


def test_positions_are_committed_for_the_group(monkeypatch):
    seen = []
    monkeypatch.setattr(group_offsets, "commit_offsets", lambda *call: seen.append(call))
    GroupOffsets({}, "headrace.clicks").show(POSITIONS, EPOCHS)
    assert seen == [({}, "headrace.clicks", POSITIONS, EPOCHS)]
