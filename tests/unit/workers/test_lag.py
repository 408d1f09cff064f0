"""How far behind an instance is, as far as it is known."""

import asyncio
from types import SimpleNamespace

from confluent_kafka import KafkaError, KafkaException

from headrace.errors import BrokerUnreachableError
from headrace.kafka.group.start_positions import StartPosition
from headrace.model import TopicPartition
from headrace.workers import OneToOne
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.monitoring import lag
from headrace.workers.monitoring.lag import EndOffsets
from headrace.workers.monitoring.progress import measure_partitions

HERE = TopicPartition("clicks", 0)


def instance(read):
    """With one partition: so many records read, none done."""
    assignment = AssignedPartition(StartPosition(HERE, 0, "", "id"), OneToOne())
    assignment.reach(0)
    for offset in range(read):
        assignment._offsets.consume(offset)
    return SimpleNamespace(assignments={HERE: assignment})


def test_before_the_end_is_known_the_lag_is_what_was_read_and_is_not_done():
    [found] = measure_partitions(instance(7), EndOffsets({}))
    assert found.lag_records == 7


def test_while_brokers_are_away_the_reason_says_so_and_what_was_known_stays(monkeypatch):
    answers = [{HERE: (0, 9)}, BrokerUnreachableError("127.0.0.1:9", "no answer"), {HERE: (0, 12)}]

    def watermarks(*_):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(lag, "watermarks", watermarks)
    monkeypatch.setattr(lag, "first_timestamps", lambda *_: {})
    ends, seen = EndOffsets({}), []
    for _ in range(3):
        asyncio.run(ends.refresh({}, {HERE}))
        seen.append((ends.lag(HERE, 2), "does not respond" in ends.reason))
    assert seen == [(7, False), (7, True), (10, False)]


def test_a_refusal_is_the_reason_and_ends_no_further_question(monkeypatch):
    def refused(*_):
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    monkeypatch.setattr(lag, "watermarks", refused)
    ends = EndOffsets({})
    asyncio.run(ends.refresh({}, {HERE}))
    assert "TOPIC_AUTHORIZATION_FAILED" in ends.reason
