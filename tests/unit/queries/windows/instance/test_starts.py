"""Where an instance goes on: at offsets of the topics that its snapshots were written for."""

from __future__ import annotations

import pytest
from tests.unit.queries.windows.instance.test_owned import SNAPSHOT_SECONDS, Owned, added

from headrace.errors import QueryTopicRecreatedError, QueryTopicTruncatedError
from headrace.kafka.read import resume
from headrace.kafka.read.cluster import LivePositions
from headrace.kafka.read.log_cuts import Seen
from headrace.queries.windows.instance import starts as starts_module
from headrace.queries.windows.instance.starts import place_stages

LEADS = 4
MATCHED, ENDED = "ads.matched", "ads.ended"


@pytest.fixture
def topic_ids(monkeypatch, firsts, cuts, asked):
    """Ids of the topics, which end far behind whatever was taken of them."""
    ids = {"ads.matched": "matched", "ads.ended": "ended"}

    class Cluster:
        def __init__(self, config):
            pass

        def live(self, topic):
            return LivePositions(ids[topic], {0: firsts.get(topic, 0)}, {0: 10_000}, {0: LEADS})

    def find_cuts(_, seen, ends):
        newly_led = {place: at for place, at in seen.items() if at.epoch != ends[place][1]}
        asked.update({place.topic: at for place, at in newly_led.items()})
        return {place: cuts[place.topic] for place in newly_led if place.topic in cuts}

    monkeypatch.setattr(starts_module, "KafkaCluster", Cluster)
    monkeypatch.setattr(resume, "find_cuts_by_new_leaders", find_cuts)
    return ids


@pytest.fixture
def firsts():
    """The first offset of a topic, where it is not 0."""
    return {}


@pytest.fixture
def cuts():
    """Where the log of a topic was cut, as its leader says when it is asked."""
    return {}


@pytest.fixture
def asked():
    """What leaders were asked about, by topic."""
    return {}


@pytest.fixture
def owned(monkeypatch):
    return Owned(monkeypatch)


def places(owned):
    placed = place_stages({}, owned.queries, {0: owned.partition})
    return {place.topic: place.offset for place in placed}


def take_and_stop(owned, epoch=-1):
    """Takes a record of each topic, which a leader of this epoch wrote, and keeps the positions."""
    places(owned)
    owned.partition.take(added(1), 0, 0)
    for topic in (MATCHED, ENDED):
        owned.partition.stage(topic).seen = Seen(1, epoch)
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


@pytest.mark.parametrize("topic", [MATCHED, ENDED])
def test_a_log_that_was_cut_and_has_grown_again_is_refused(owned, topic_ids, cuts, topic):
    take_and_stop(owned, epoch=LEADS - 1)
    owned.start()
    cuts[topic] = 0
    with pytest.raises(QueryTopicTruncatedError) as refused:
        places(owned)
    assert (refused.value.partition, refused.value.cut_offset) == (f"{topic}[0]", 0)
    assert "ads.snapshots[0]" in refused.value.remedy


def test_a_leader_that_wrote_the_last_record_itself_is_not_asked(owned, topic_ids, asked):
    take_and_stop(owned, epoch=LEADS)
    owned.start()
    places(owned)
    assert asked == {}


def test_a_log_is_not_compared_at_a_record_that_is_deleted(owned, topic_ids, firsts, asked):
    take_and_stop(owned, epoch=LEADS - 1)
    owned.start()
    for topic in (MATCHED, ENDED):
        owned.partition.stage(topic).offset = firsts[topic] = 7
    assert places(owned) == {MATCHED: 7, ENDED: 7}
    assert asked == {}
    assert owned.partition.aggregator.seen == Seen(0)


def test_a_reader_begins_behind_the_last_record_whose_epoch_is_known(owned, topic_ids):
    """Another leader may have written the markers that follow it."""
    take_and_stop(owned, epoch=LEADS)
    owned.start()
    owned.partition.aggregator.offset = 3  # behind markers
    placed = place_stages({}, owned.queries, {0: owned.partition})
    assert [(place.offset, place.leader_epoch) for place in placed] == [(1, LEADS)] * 2
    assert owned.partition.aggregator.offset == 3
