"""A compacted topic as a table, on a real broker."""

from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.kafka.changelog import (
    ChangelogFollower,
    ensure_changelog,
    read_changelog,
    write_changelog,
)
from headrace.kafka.client import admin, describe
from headrace.kafka.topics import topic_states


def config(broker):
    return {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}


def test_the_newest_value_of_each_key_is_read(broker, topic):
    name, client = topic("changelog"), config(broker)
    assert read_changelog(client, name) == {}
    ensure_changelog(client, name)
    ensure_changelog(client, name)
    assert read_changelog(client, name) == {}
    write_changelog(client, name, {b"a": b"1", b"b": b"1"})
    write_changelog(client, name, {b"a": b"2", b"b": None, b"c": b""})
    assert read_changelog(client, name) == {b"a": b"2", b"c": b""}
    state = topic_states(client, [name])[name]
    assert state.config["cleanup.policy"] == "compact"


def test_what_is_added_reaches_who_follows(broker, topic):
    name, client, table = topic("changelog"), config(broker), {}
    follower = ChangelogFollower(client, name, table.__setitem__)
    assert not follower.ready
    ensure_changelog(client, name)
    wait_for(lambda: follower.ready)
    write_changelog(client, name, {b"a": b"1"})
    wait_for(lambda: table == {b"a": b"1"})
    write_changelog(client, name, {b"a": None})
    wait_for(lambda: table == {b"a": None})
    follower.close()


def test_a_topic_made_again_is_followed_again(broker, topic):
    name, client, table = topic("changelog"), config(broker), {}
    ensure_changelog(client, name)
    follower = ChangelogFollower(client, name, table.__setitem__)
    wait_for(lambda: follower.ready)
    admin(client).delete_topics([name])[name].result(LIMIT_SECONDS)
    wait_for(lambda: name not in describe(client, [name]))
    ensure_changelog(client, name)
    write_changelog(client, name, {b"a": b"1"})
    wait_for(lambda: table == {b"a": b"1"})
    follower.close()
