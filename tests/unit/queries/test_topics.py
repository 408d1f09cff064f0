"""What is to be done for the topics of standing queries, by those that there are."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from headrace.kafka.admin.topics import Action, TopicState
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.queries.declaration import StandingQueries
from headrace.queries.topics import query_topic_changes, query_topics

ADS = StandingQueries("ads", partitions=4)


def created(queries):
    """Returns topics as they are once they were created."""
    return {
        topic.name: TopicState(
            LiveTopic(topic.name, topic.name, topic.partitions, 1), topic.kafka_config, frozenset()
        )
        for topic in query_topics(queries, 1)
    }


def test_missing_topics_are_created_with_the_declared_partitions():
    changes = query_topic_changes(ADS, 3, {})
    assert {change.action for change in changes} == {Action.CREATE}
    assert {change.topic: (change.partitions, change.replication) for change in changes} == {
        "ads.queries": (1, 3),
        "ads.positions": (1, 3),
        "ads.matched": (4, 3),
        "ads.ended": (4, 3),
        "ads.snapshots": (4, 3),
        "ads.results": (4, 3),
        "ads.matched-events": (4, 3),
        "ads.leases": (1, 3),
    }
    assert query_topic_changes(ADS, 3, created(ADS)) == []


def test_other_partitions_are_refused_for_each_topic():
    changes = query_topic_changes(replace(ADS, partitions=8), 1, created(ADS))
    assert {change.action for change in changes} == {Action.REFUSED}
    assert sorted(change.topic for change in changes) == [
        "ads.ended", "ads.matched", "ads.matched-events", "ads.results", "ads.snapshots",
    ]  # fmt: skip
    assert changes[0].detail.startswith("it has 4 partitions, and 'ads' declares 8")


def test_another_max_ttl_is_refused_with_the_command():
    for max_ttl in (timedelta(hours=3), None):
        [change] = query_topic_changes(replace(ADS, max_ttl=max_ttl), 1, created(ADS))
        assert (change.topic, change.action) == ("ads.queries", Action.REFUSED)
        assert "kafka-configs.sh --bootstrap-server HOST:PORT --alter" in change.detail
