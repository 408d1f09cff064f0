"""Where an instance goes on: at offsets of the topics that its snapshots were written for."""

from __future__ import annotations

import pytest
from tests.unit.queries.instance.test_owned import SNAPSHOT_SECONDS, Owned, added

from headrace.errors import QueryTopicRecreatedError
from headrace.kafka.cluster import LivePositions
from headrace.queries.instance import starts as starts_module
from headrace.queries.instance.starts import place_stages


@pytest.fixture
def topic_ids(monkeypatch):
    """Ids of the topics, which end far behind whatever was taken of them."""
    ids = {"ads.matched": "matched", "ads.ended": "ended"}

    class Cluster:
        def __init__(self, config):
            pass

        def live(self, topic):
            return LivePositions(ids[topic], {0: 0}, {0: 10_000})

    monkeypatch.setattr(starts_module, "KafkaCluster", Cluster)
    return ids


@pytest.fixture
def owned(monkeypatch):
    return Owned(monkeypatch)


def places(owned):
    placed = place_stages({}, owned.queries, {0: owned.partition})
    return {place.topic: place.offset for place in placed}


def take_and_stop(owned):
    places(owned)
    owned.partition.take(added(1), 0, 0)
    owned.pass_minutes(0, after_seconds=SNAPSHOT_SECONDS)


def test_an_instance_goes_on_in_the_topics_of_its_snapshots(owned, topic_ids):
    take_and_stop(owned)
    owned.start()
    assert places(owned) == {"ads.matched": 1, "ads.ended": 1}


@pytest.mark.parametrize("topic", ["ads.matched", "ads.ended"])
def test_a_topic_that_was_made_again_and_has_grown_is_refused(owned, topic_ids, topic):
    take_and_stop(owned)
    owned.start()
    known, topic_ids[topic] = topic_ids[topic], "another"
    with pytest.raises(QueryTopicRecreatedError) as refused:
        places(owned)
    assert (refused.value.topic, refused.value.snapshot_topic_id) == (topic, known)
    assert "ads.snapshots" in refused.value.remedy


def test_snapshots_that_do_not_know_their_topics_are_gone_on_with(owned, topic_ids):
    owned.partition.take(added(1), 0, 0)
    owned.pass_minutes(0, after_seconds=SNAPSHOT_SECONDS)
    owned.start()
    assert places(owned) == {"ads.matched": 1, "ads.ended": 1}
