"""A member of a group on a real broker."""

import time

import pytest
from confluent_kafka.admin import NewTopic

from headrace.kafka.client import admin
from headrace.kafka.subscription import Membership, Subscription

PATIENCE_SECONDS = 60.0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_partitions_that_come_while_it_leaves_are_not_taken(broker, topic, protocol):
    client, name, seen = {"bootstrap.servers": broker.bootstrap_servers}, topic(), []
    for future in admin(client).create_topics([NewTopic(name, 2, 1)]).values():
        future.result()
    member = Subscription(
        client,
        Membership(name, (name,), protocol=protocol),
        on_assigned=seen.append,
        on_revoked=lambda partitions: [],
        on_lost=lambda partitions: None,
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not member._consumer.memberid():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1.5)  # for its partitions; nothing else says that they have come
    member.close()  # raised what had no answer, after half a minute
    assert seen == []
