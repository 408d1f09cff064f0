"""A compacted topic as a table, on a real broker."""

from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.kafka.admin.topics import topic_states
from headrace.kafka.client.admin_requests import admin, describe
from headrace.kafka.table.changelog import ensure_changelog, write_changelog
from headrace.kafka.table.topic_table import TableFollower, read_table


def config(broker):
    return {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}


def test_the_newest_value_of_each_key_is_read(broker, topic):
    name, client = topic("changelog"), config(broker)
    assert read_table(client, name) == {}
    ensure_changelog(client, name)
    ensure_changelog(client, name)
    assert read_table(client, name) == {}
    write_changelog(client, name, {b"a": b"1", b"b": b"1"})
    write_changelog(client, name, {b"a": b"2", b"b": None, b"c": b""})
    assert read_table(client, name) == {b"a": b"2", b"c": b""}
    state = topic_states(client, [name])[name]
    assert state.config["cleanup.policy"] == "compact"


def test_a_settled_read_waits_for_open_transactions(broker, topic):
    name, client = topic("changelog"), config(broker)
    ensure_changelog(client, name)
    write_changelog(client, name, {b"before": b"1"})
    producer = confluent_kafka.Producer(client | {"transactional.id": name})
    producer.init_transactions(LIMIT_SECONDS)
    producer.begin_transaction()
    producer.produce(name, b"1", b"within")
    producer.flush(LIMIT_SECONDS)
    write_changelog(client, name, {b"after": b"1"})
    assert read_table(client, name) == {b"before": b"1"}
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(read_table, client, name, settled=True)
        producer.commit_transaction(LIMIT_SECONDS)
        assert reading.result(LIMIT_SECONDS).keys() == {b"before", b"within", b"after"}


def test_what_is_added_reaches_who_follows(broker, topic):
    name, client, table = topic("changelog"), config(broker), {}
    follower = TableFollower(client, name, table.__setitem__)
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
    follower = TableFollower(client, name, table.__setitem__)
    wait_for(lambda: follower.ready)
    admin(client).delete_topics([name])[name].result(LIMIT_SECONDS)
    wait_for(lambda: name not in describe(client, [name]))
    ensure_changelog(client, name)
    write_changelog(client, name, {b"a": b"1"})
    wait_for(lambda: table == {b"a": b"1"})
    follower.close()
