from __future__ import annotations

from datetime import timedelta

import pytest

from headrace.kafka.admin.topics import (
    Action,
    KnownKey,
    TopicState,
    dead_letter_topic,
    plan_topics,
    with_dead_letters,
)
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.model import Topic


class Click:
    id: str
    user: str


def live(partitions: int = 1, replication: int = 1, config=None, **changes) -> TopicState:
    config = {"cleanup.policy": "delete"} | (config or {})
    topic = LiveTopic("t", "id-1", partitions, replication)
    return TopicState(topic, config, frozenset(config), **changes)


def test_a_topic_that_is_as_declared_needs_no_change():
    assert plan_topics([Topic("t")], {"t": live()}) == []


def test_a_missing_topic_is_created_with_exactly_what_is_declared():
    topic = Topic("t", partitions=3, retention=timedelta(days=1), compaction=True)
    [change] = plan_topics([topic], {})
    assert (change.action, change.partitions, change.replication) == (Action.CREATE, 3, 1)
    assert change.config == {"cleanup.policy": "compact", "retention.ms": "86400000"}


@pytest.mark.parametrize(
    ("topic", "state", "action", "words"),
    [
        (Topic("t", partitions=2), live(), Action.ADD_PARTITIONS, "1 to 2 partitions"),
        (Topic("t"), live(partitions=2), Action.REFUSED, "can't take any away"),
        (Topic("t"), live(replication=3), Action.REFUSED, "kafka-reassign-partitions"),
        (Topic("t", compaction=True), live(), Action.ALTER_CONFIG, "delete to compact"),
        (
            Topic("t"),
            live(config={"segment.ms": "5"}),
            Action.ALTER_CONFIG,
            "segment.ms 5 to the default",
        ),
    ],
)
def test_drift_is_mended_or_refused_with_the_reason(topic, state, action, words):
    [change] = plan_topics([topic], {"t": state})
    assert change.action is action
    assert words in change.detail


def test_more_partitions_of_a_keyed_topic_say_that_keys_move():
    topic = Topic("t", event=Click, key="id", partitions=2)
    [change] = plan_topics([topic], {"t": live()})
    assert "'id' move" in change.detail


def test_a_throttle_that_kafkas_tools_set_is_no_drift():
    state = live(config={"leader.replication.throttled.replicas": "*"})
    assert plan_topics([Topic("t")], {"t": state}) == []


@pytest.mark.parametrize(
    ("known", "empty", "refused"),
    [
        (KnownKey("id-1", "user"), False, True),
        (KnownKey("id-1", None), False, True),
        (KnownKey("id-1", "id"), False, False),
        (KnownKey("id-1", "user"), True, False),
        (KnownKey("id-0", "user"), False, False),
        (None, False, False),
    ],
)
def test_a_changed_key_is_refused_where_records_have_the_old_one(known, empty, refused):
    topic = Topic("t", event=Click, key="id")
    keys = {} if known is None else {"t": known}
    changes = plan_topics([topic], {"t": live(is_empty=empty)}, keys)
    assert [one.action for one in changes] == ([Action.REFUSED] if refused else [])


def test_dead_letters_are_kept_thirty_days_or_as_long_as_the_topic():
    assert dead_letter_topic(Topic("t")).retention == timedelta(days=30)
    assert dead_letter_topic(Topic("t", retention=timedelta(days=1))).retention == timedelta(30)
    assert dead_letter_topic(Topic("t", retention=timedelta(days=90))).retention == timedelta(90)
    forever = dead_letter_topic(Topic("t", config={"retention.ms": "-1"}))
    assert forever.kafka_config["retention.ms"] == "-1"


def test_a_dead_letter_may_be_larger_than_the_original_by_its_headers():
    topic = Topic("t", config={"max.message.bytes": "5000000"})
    assert int(dead_letter_topic(topic).config["max.message.bytes"]) > 5_000_000


def test_dead_letter_topics_are_declared_for_what_is_read_unless_they_are_declared_already():
    read, other, own = Topic("a"), Topic("b"), Topic("a.dead", partitions=3)
    assert [one.name for one in with_dead_letters([read, other], [read])] == ["a", "b", "a.dead"]
    assert own in with_dead_letters([read, own], [read])
