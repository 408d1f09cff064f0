"""Declared topics against what the brokers say."""

from datetime import timedelta

import pytest

from headrace import Lake, LateData, Pipeline, Source, count_windows, deduplicate
from headrace.kafka.client.admin_requests import NO_TOPIC_ID, LiveTopic
from headrace.kafka.client.brokers import Brokers
from headrace.model import ByField, ByKey, Random, Topic
from headrace.pipelines.durability import pipeline_warnings
from headrace.topics.durability import (
    cluster_warnings,
    identity_warnings,
    live_warnings,
    rack_warnings,
    topic_warnings,
)

# As Kafka 4.3.1 answers.
DEFAULTS = {
    "auto.create.topics.enable": "false",
    "log.roll.hours": "168",
    "min.insync.replicas": "1",
    "socket.request.max.bytes": "104857600",
    "unclean.leader.election.enable": "false",
}


def warnings(topic, *, brokers=3, **changed):
    config = DEFAULTS | {name.replace("_", "."): value for name, value in changed.items()}
    return [fault.message for fault in live_warnings(topic, Brokers(brokers, config))]


def test_a_plain_topic_on_plain_brokers_is_no_warning():
    assert warnings(Topic("t"), brokers=1) == []


@pytest.mark.parametrize(
    ("topic", "changed", "words"),
    [
        (Topic("t", replication=3), {}, "is 1: a write is confirmed by one broker alone"),
        (Topic("t"), {}, "'t': replication is 1 (the default) on 3 brokers: while a broker is"),
        (Topic("t"), {"brokers": 4, "min_insync_replicas": "2"}, "on 4 brokers"),
        (Topic("t", replication=2), {}, "replication 2 on 3 brokers, and min.insync.replicas is 1"),
        (Topic("t", replication=2), {"min_insync_replicas": "2"}, "while any broker is down"),
        (Topic("t", replication=2), {"brokers": 1}, "replication 2, but 1 broker(s) answer"),
        (
            Topic("t", replication=2),
            {"brokers": 2, "unclean_leader_election_enable": "true"},
            "may lead",
        ),
        (
            Topic("t", config={"max.message.bytes": "2000"}),
            {"brokers": 1, "socket_request_max_bytes": "1000"},
            "max.message.bytes 2000 is above the brokers' socket.request.max.bytes 1000",
        ),
        (
            Topic("t", retention=timedelta(days=2)),
            {"brokers": 1, "log_roll_hours": "336"},
            "segment.ms is 14 days, 0:00:00, retention 2 days",
        ),
    ],
)
def test_what_the_brokers_make_of_a_topic_is_a_warning(topic, changed, words):
    [message] = warnings(topic, **changed)
    assert words in message


@pytest.mark.parametrize(
    ("topic", "changed"),
    [
        (Topic("t", replication=3), {"min_insync_replicas": "2"}),
        (Topic("t"), {"brokers": 2, "min_insync_replicas": "2"}),
        (Topic("t", replication=2), {"brokers": 2}),
        (Topic("t", retention=timedelta(hours=2)), {"brokers": 1, "log_roll_ms": "3600000"}),
        (
            Topic(
                "t",
                retention=timedelta(hours=2),
                config={"cleanup.policy": "compact", "segment.ms": "86400000"},
            ),
            {"brokers": 1},
        ),
        (
            Topic("t", replication=2, config={"unclean.leader.election.enable": "false"}),
            {"brokers": 2, "unclean_leader_election_enable": "true"},
        ),
    ],
)
def test_what_the_brokers_or_the_topic_make_good_is_no_warning(topic, changed):
    assert warnings(topic, **changed) == []


@pytest.mark.parametrize("replication", [1, 2])
def test_the_way_out_of_too_few_copies_names_fields_that_give_no_further_warning(replication):
    declared = Topic("t", replication=replication)
    [fault] = live_warnings(declared, Brokers(3, DEFAULTS))
    safe = {"replication": 3, "config": {"min.insync.replicas": "2"}}
    assert fault.remedy == 'replication=3, config={"min.insync.replicas": "2"}'
    assert warnings(Topic("t", **safe)) == []
    # A check knows of no brokers: one copy is all that a laptop can have.
    assert list(topic_warnings(declared)) == []


def test_brokers_that_do_not_show_their_settings_are_taken_for_those_of_kafka():
    [fault] = live_warnings(Topic("t", replication=2), Brokers(3, {}))
    assert "min.insync.replicas is not declared, and 1 by default" in fault.message


RACKS = {1: "a", 2: "a", 3: "b", 4: "b"}


def racked(*replicas, racks=RACKS):
    copies = dict(enumerate(map(frozenset, replicas)))
    topic = LiveTopic("t", "id", len(copies), len(replicas[0]), replicas=copies)
    return [fault.message for fault in rack_warnings([topic], Brokers(len(racks), {}, racks))]


def test_copies_that_are_all_in_one_rack_are_a_warning_of_each_rack():
    a, b = racked({1, 2}, {1, 3}, {3, 4}, {2, 1})
    assert a.startswith("topic 't': all copies of 2 of 4 partition(s) (0, 3) are in rack 'a'")
    assert "1 of 4 partition(s) (2) are in rack 'b'" in b
    [many] = racked(*[{1, 2}] * 12)
    assert "12 of 12 partition(s) (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...)" in many


@pytest.mark.parametrize(
    ("replicas", "racks"),
    [
        ({1, 3}, RACKS),
        ({1}, RACKS),
        ({1, 2}, {1: "a", 2: "a", 3: "a"}),
        ({1, 2}, {}),
        ({1, 2}, {1: "a", 3: "b"}),
    ],
    ids=["several racks", "one copy", "one rack", "no racks", "a broker without a rack"],
)
def test_racks_that_can_not_be_better_or_are_not_known_are_no_warning(replicas, racks):
    assert racked(replicas, racks=racks) == []


def test_brokers_that_say_nothing_are_judged_by_their_number():
    assert list(live_warnings(Topic("t"), Brokers(1, {}))) == []


def test_topics_that_make_themselves_are_a_warning():
    [fault] = cluster_warnings(
        Brokers(1, {"auto.create.topics.enable": "true", "num.partitions": "4"})
    )
    assert "4 partition(s)" in fault.message
    assert fault.remedy


def test_topics_without_ids_are_a_warning_as_their_end_is_not_noticed():
    nameless = LiveTopic("t", NO_TOPIC_ID, 1, 1)
    [fault] = identity_warnings([LiveTopic("u", "iI2m", 1, 1), nameless])
    assert "(t)" in fault.message
    assert fault.remedy
    assert list(identity_warnings([LiveTopic("u", "iI2m", 1, 1)])) == []


@pytest.mark.parametrize(
    ("left", "right", "count"),
    [(ByKey(), ByKey(), 0), (ByKey(), ByField("user"), 0), (ByKey(), Random(), 1)],
)
def test_topics_read_together_are_partitioned_alike(left, right, count):
    sources = [Topic("a", partitioning=left), Topic("b", partitioning=right)]
    pipeline = Pipeline("p", source=sources, sink=Lake("p"))
    assert len(list(pipeline_warnings(pipeline))) == count


@pytest.mark.parametrize(
    ("kept", "count"),
    [
        ({"retention": timedelta(minutes=59)}, 1),
        ({"config": {"retention.ms": "60000"}}, 1),
        ({"retention": timedelta(hours=1)}, 0),
        ({"retention": timedelta(minutes=1), "compaction": True}, 0),
        ({"config": {"retention.ms": "60000", "cleanup.policy": "compact"}}, 0),
        ({"config": {"retention.ms": "60000", "cleanup.policy": "compact,delete"}}, 1),
        ({"config": {"retention.ms": "-1"}}, 0),
        ({}, 0),
    ],
)
def test_a_topic_keeps_its_events_for_longer_than_its_pipeline_waits_for_late_ones(kept, count):
    pipeline = Pipeline("p", Topic("a", **kept), Lake("p"), allowed_lateness=timedelta(hours=1))
    found = list(pipeline_warnings(pipeline))
    assert len(found) == count
    assert all("lateness" in fault.remedy for fault in found)


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("step", "changes", "count"),
    [
        (deduplicate(["n"], HOUR), {}, 1),
        (deduplicate(["n"], HOUR * 2), {}, 0),
        (count_windows(HOUR, within=HOUR / 2), {"late_data": LateData.DEAD_LETTER}, 1),
        (deduplicate(["n"], HOUR), {"source": Source(Topic("a"), watermark=HOUR)}, 0),
        (lambda rows: rows, {}, 0),
    ],
    ids=["as long", "longer", "dead letters", "watermark of the source", "a function"],
)
def test_a_step_that_drops_before_late_data_takes_is_a_warning(step, changes, count):
    values = {"source": Topic("a"), "late_data": Lake("late"), "allowed_lateness": HOUR}
    pipeline = Pipeline("p", sink=Lake("p"), steps=[step], **values | changes)
    faults = list(pipeline_warnings(pipeline))
    assert len(faults) == count
    assert all("events between the two are dead letters" in fault.message for fault in faults)


@pytest.mark.parametrize("step", [deduplicate(["n"], HOUR * 9), count_windows(HOUR)])
@pytest.mark.parametrize(
    "source", [Topic("a"), Source(Topic("a"), watermark=HOUR), [Topic("a"), Topic("b")]]
)
def test_a_step_that_does_not_take_what_late_data_keeps_is_a_warning(step, source):
    [fault] = pipeline_warnings(Pipeline("p", source, Lake("p"), steps=[step]))
    said = f"{type(step).__name__} does not take those that come behind its watermark"
    assert said in fault.message
    assert "dead letters (behind-watermark)" in fault.message


def test_rows_that_are_dropped_by_name_are_said_to_be():
    pipeline = Pipeline(
        "p",
        Topic("a"),
        Lake("p"),
        steps=[count_windows(HOUR, within=HOUR / 2)],
        late_data=LateData.DROP,
    )
    [fault] = pipeline_warnings(pipeline)
    assert "events between the two are dropped" in fault.message
