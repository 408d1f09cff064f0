"""A member of a group on a real broker."""

import pytest
from tests.kafka_topics import make_topic
from tests.waiting import wait_for

from headrace.errors import BrokerUnreachableError
from headrace.kafka.admin.topics import ensure_topics
from headrace.kafka.group import start_positions
from headrace.kafka.group.groups import describe_group, offset_metadata_bytes
from headrace.kafka.group.subscription import Membership, Pauses, Subscription
from headrace.model import Topic


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_partitions_that_come_while_it_leaves_are_not_taken(broker, topic, protocol):
    client, name, seen = {"bootstrap.servers": broker.bootstrap_servers}, topic(), []
    make_topic(client, name, 2)
    member = Subscription(
        client,
        Membership(name, (name,), protocol=protocol),
        Pauses(),
        on_assigned=seen.append,
        on_revoked=lambda partitions: [],
        on_lost=lambda partitions: None,
    )
    wait_for(member._consumer.memberid)
    wait_for(lambda: [one.partitions for one in describe_group(client, name).members] == [2])
    member.close()  # raised what had no answer, after half a minute
    assert seen == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_without_partitions_leaves_its_group(broker, topic, protocol):
    client, name = {"bootstrap.servers": broker.bootstrap_servers}, topic()
    ensure_topics(client, [Topic(name, partitions=1)])
    members = [
        Subscription(
            client,
            Membership(name, (name,), protocol=protocol),
            Pauses(),
            print,
            lambda _: [],
            print,
        )
        for _ in range(2)
    ]

    def is_settled():
        for one in members:
            one.take(1, 0.1)
        return sorted(len(one._assigned) for one in members) == [0, 1] and is_stable(client, name)

    wait_for(is_settled)
    members.sort(key=lambda one: len(one._assigned))
    members[0].close()
    left = describe_group(client, name).members
    members[1].close()
    assert len(left) == 1


def is_stable(client, group):
    found = describe_group(client, group)
    return found.state == "stable" and len(found.members) == 2


def test_brokers_that_are_away_when_partitions_come_are_asked_again(broker, topic, monkeypatch):
    client, name, seen = {"bootstrap.servers": broker.bootstrap_servers}, topic(), []
    ensure_topics(client, [Topic(name)])
    away = [BrokerUnreachableError(broker.bootstrap_servers, "no answer")] * 2
    ask = start_positions.watermarks

    def watermarks(*asked):
        if away:
            raise away.pop()
        return ask(*asked)

    monkeypatch.setattr(start_positions, "watermarks", watermarks)
    member = Subscription(
        client,
        Membership(name, (name,)),
        Pauses(),
        on_assigned=seen.extend,
        on_revoked=lambda partitions: [],
        on_lost=lambda partitions: None,
    )
    wait_for(lambda: member.take(1, 0.1) and seen)
    member.close()
    assert away == []


def test_the_brokers_say_how_much_metadata_they_take_with_an_offset(broker):
    assert offset_metadata_bytes({"bootstrap.servers": broker.bootstrap_servers}) == 4096
