"""Errors of a member of a group, wherever the client raises them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import InstanceIdTakenError
from headrace.kafka.subscription import Membership, Subscription

FENCED = KafkaException(KafkaError(KafkaError.FENCED_INSTANCE_ID))


def refuse(*_):
    raise FENCED


@pytest.mark.parametrize(
    "consumer",
    [
        SimpleNamespace(poll=refuse),
        SimpleNamespace(poll=lambda _: object(), consume=refuse),
    ],
    ids=["poll", "consume"],
)
def test_an_instance_id_that_another_member_took_is_named(consumer):
    membership = Membership("g", ("orders",), instance_id="web-0")
    config = {"bootstrap.servers": "127.0.0.1:1"}
    member = Subscription(config, membership, print, lambda _: [], print)
    member._consumer.close()
    member._consumer = consumer
    with pytest.raises(InstanceIdTakenError, match="web-0"):
        member.take(10, 0.1)
