"""How long pipelines remember events, against how long their topics keep them."""

from datetime import timedelta

import pytest

from headrace import Join, Lake, Pipeline, Topic, Unique, deduplicate
from headrace.kafka.admin.topics import TopicState
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.pipelines.late_data.retention_rules import live_horizon_warnings, retention_faults

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


def joined(within, *, earlier=None, later=None):
    views, clicks = Topic("views", retention=earlier), Topic("clicks", retention=later)
    source = Join(clicks, views, on=("view", "id"), column="of", within=within, wait=10 * MINUTE)
    return Pipeline("p", source=source, sink=Lake("t"))


def unique(topic, within=DAY):
    return Pipeline("p", topic, Lake("t"), steps=[deduplicate(by=["id"], within=within)])


def messages(pipeline):
    return [fault.message for fault in retention_faults(pipeline)]


def test_a_join_is_refused_that_remembers_for_longer_than_the_earlier_topic_keeps():
    assert messages(joined(DAY - 20 * MINUTE, earlier=DAY)) == []
    [message] = messages(joined(DAY - 19 * MINUTE, earlier=DAY))
    assert "Join.within 23:41:00 and two times Join.wait 0:10:00" in message
    assert "topic 'views' keeps records, 1 day" in message


def test_a_join_is_refused_whose_later_topic_keeps_less_than_events_wait():
    assert messages(joined(DAY, later=10 * MINUTE)) == []
    [message] = messages(joined(DAY, later=9 * MINUTE))
    assert "Join.wait 0:10:00 is longer than topic 'clicks' keeps records, 0:09:00" in message


@pytest.mark.parametrize(
    ("topic", "is_refused"),
    [
        (Topic("t", retention=DAY), False),
        (Topic("t", retention=DAY - MINUTE), True),
        (Topic("t", config={"retention.ms": "60000"}), True),
        (Topic("t", config={"retention.ms": "-1"}), False),
        (Topic("t", retention=MINUTE, compaction=True), False),
        (Topic("t", retention=MINUTE, config={"cleanup.policy": "compact"}), False),
        (Topic("t", retention=MINUTE, config={"cleanup.policy": "compact,delete"}), True),
        (Topic("t"), False),
    ],
)
def test_de_duplication_is_refused_that_remembers_for_longer_than_its_topic_keeps(
    topic, is_refused
):
    assert ["deduplicate.within 1 day" in message for message in messages(unique(topic))] == (
        [True] if is_refused else []
    )


def test_a_table_without_repeats_needs_no_retention():
    table = Lake("t", unique=Unique(["id"], 30 * DAY))
    assert messages(Pipeline("p", Topic("t", retention=DAY), table)) == []


@pytest.mark.parametrize(
    ("live", "brokers", "keeps"),
    [
        ({"retention.ms": "3600000"}, {}, "1:00:00"),
        ({"retention.ms": "-1"}, {"log.retention.hours": "1"}, ""),
        (None, {"log.retention.hours": "2"}, "2:00:00"),
        (None, {"log.retention.minutes": "3", "log.retention.hours": "2"}, "0:03:00"),
        (None, {"log.retention.ms": "-1", "log.retention.hours": "2"}, ""),
        (None, {}, ""),
    ],
)
def test_a_topic_that_declares_no_retention_has_that_of_the_brokers(live, brokers, keeps):
    state = {} if live is None else {"t": TopicState(LiveTopic("t", "id", 1, 1), live, frozenset())}
    found = [fault.message for fault in live_horizon_warnings(unique(Topic("t")), state, brokers)]
    assert len(found) == (1 if keeps else 0)
    for message in found:
        assert "deduplicate.within 1 day, 0:00:00 is longer than topic 't' keeps" in message
        assert f"keeps records, {keeps}: a checkpoint" in message


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({}, 1),  # headrace declares the policy of each topic: `log.cleanup.policy` is not asked
        ({"cleanup.policy": "compact,delete"}, 1),
        ({"cleanup.policy": "compact"}, 0),
        ({"retention.ms": "-1"}, 0),
    ],
)
def test_brokers_delete_what_is_not_compacted_alone_nor_kept_for_ever(config, count):
    pipeline = unique(Topic("t", config=config))
    brokers = {"log.cleanup.policy": "compact", "log.retention.hours": "1"}
    assert len(list(live_horizon_warnings(pipeline, {}, brokers))) == count


def test_what_a_topic_declares_is_not_warned_of_twice():
    live = {"t": TopicState(LiveTopic("t", "id", 1, 1), {"retention.ms": "1"}, frozenset())}
    assert list(live_horizon_warnings(unique(Topic("t", retention=DAY)), live, {})) == []
