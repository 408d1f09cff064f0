"""Whether matched events balance, whatever happens to topics, queries and positions."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta

import confluent_kafka
import pyarrow as pa
import pytest
from tests.integration.emit_project import ALL, CHEAP, FLOW, EmitProject
from tests.kafka_topics import grow_topic, make_topic
from tests.registered import registered_queries, update_query
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace.kafka.admin.topics import delete_topic
from headrace.kafka.client.admin_requests import admin_request, describe
from headrace.kafka.client.clients import connected_producer
from headrace.kafka.client.offsets import commit
from headrace.kafka.read import resume
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import TopicPartition
from headrace.queries.books import matched_events_books
from headrace.queries.emit import book as module
from headrace.queries.emit import rules as rules_module
from headrace.queries.emit.emitter import EventEmitter
from headrace.queries.emit.positions import (
    commit_positions,
    committed_positions,
    find_start,
    with_queries,
)
from headrace.queries.emit.rules import EmittingRules
from headrace.queries.match.held import RegistryReader
from headrace.queries.topics import ensure_query_topics

NEWEST = pa.table(
    {
        "item": pa.array([], pa.string()),
        "price": pa.array([], pa.int64()),
        "at": pa.array([], pa.timestamp("us", "UTC")),
    }
)


class CommittedProject(EmitProject):
    """Commits what `headrace query emit` commits, and sends what it sends, without Spark."""

    failover_seconds = 10.0

    def begin(self):
        """A start with the queries of now."""
        reader, matched = self.registry(), self.matched
        end = reader.end()
        rules = EmittingRules.of(reader.at(end), NEWEST, end)
        start = find_start(matched, self.failover_seconds)
        positions = with_queries(start, rules, matched.schema_hash)
        commit_positions(matched, positions)
        return positions

    def registry(self):
        topic, cluster = self.queries.queries_topic, KafkaCluster(self.config)
        return RegistryReader("test", topic, self.topic, self.matched.schema, cluster)

    def start(self, partition):
        """Where a start goes on with a partition: its position, and what was sent of the event."""
        start, source = find_start(self.matched, self.failover_seconds), self.source(partition)
        return start.positions[source], start.sent.get(source)

    def emit(self, query, partition, *offsets):
        """Sends events of a partition as matches of a query."""
        target = self.matched.target(self.source(partition))
        sender = connected_producer(self.config)
        for offset in offsets:
            origin = f"here/{self.topic}/{partition}/{offset}".encode()
            place = {"topic": target.topic, "partition": target.partition}
            sender.produce(**place, key=query, value=b"{}", headers=[("headrace-origin", origin)])
        assert sender.flush(FLUSH_SECONDS) == 0

    def source(self, partition):
        return TopicPartition(self.topic, partition)

    def delete(self, topic, partition, offset):
        """Deletes the records before an offset, as retention does."""
        place = confluent_kafka.TopicPartition(topic, partition, offset)
        admin_request(self.config, lambda admin: _results(admin.delete_records([place])))

    def make_again(self, topic):
        before = describe(self.config, [topic])[topic].topic_id
        delete_topic(self.config, topic)
        wait_for(lambda: topic not in describe(self.config, [topic]))
        if topic == self.topic:
            make_topic(self.config, topic, 2)
        else:
            ensure_query_topics(self.config, self.queries)
        assert describe(self.config, [topic])[topic].topic_id != before


def _results(futures):
    for future in futures.values():
        future.result(LIMIT_SECONDS)


@pytest.fixture
def project(tmp_path, monkeypatch, broker, topic):
    monkeypatch.setattr(sys, "path", list(sys.path))
    return CommittedProject(tmp_path, broker, topic)


def begun(project):
    """A query for all events, of which ten were sent, all ten matched."""
    project.register("all", ALL)
    project.begin()
    project.send(10)
    for partition in range(2):
        project.emit("all", partition, *range(5))
        project.commit(partition, offset=5)
    return project


def state(project):
    balance = project.balance()
    return balance.state, balance.events, balance.unknown


def test_what_was_not_looked_at_is_lag(project):
    begun(project)
    project.send(4)
    balance = project.balance()
    assert (balance.state, balance.events, balance.lag) == ("balanced", 10, 4)


def test_a_query_that_is_renewed_or_has_ended_since_is_still_compared(project):
    project.register("short", ALL)
    project.begin()
    project.send(10)
    project.emit("short", 0, *range(5))
    for partition in range(2):
        project.commit(partition, offset=5)
    assert project.differences() == {(5, 1)}
    update_query(project.loaded, "short", None, timedelta(seconds=2))
    wait_for(lambda: registered_queries(project.loaded)[0].state == "expired")
    assert project.differences() == {(5, 1)}
    project.register("short", ALL)
    assert project.differences() == {(5, 1)}


def test_a_query_whose_first_record_is_deleted_is_compared_by_its_later_one(project):
    begun(project)
    project.commit(1, offset=4)
    project.send(2)
    project.commit(1, offset=6)
    assert project.differences() == {(1, 1)}
    update_query(project.loaded, "all", None, timedelta(minutes=30))
    project.delete(project.queries.queries_topic, 0, 1)
    assert project.differences() == {(1, 1)}


def test_queries_that_are_not_known_any_more_are_unknown(project):
    begun(project)
    project.register("others", CHEAP)
    project.delete(project.queries.queries_topic, 0, 1)
    assert "Kafka has deleted those of then" in project.balance().unknown


def test_records_of_queries_that_are_deleted_behind_the_position_are_passed_over(project):
    begun(project)
    project.commit(1, offset=4)
    for _ in range(3):
        update_query(project.loaded, "all", None, timedelta(minutes=30))
    project.delete(project.queries.queries_topic, 0, 3)
    assert state(project) == ("balanced", 9, "")
    project.cancel("all")
    project.register("others", CHEAP)
    project.delete(project.queries.queries_topic, 0, 5)
    assert "Kafka has deleted those of then" in project.balance().unknown


def test_queries_that_a_process_has_are_those_that_kafka_has_kept(project):
    """A process that was asleep: of a query that was cancelled meanwhile, nothing is left."""
    project.register("old", ALL)
    reader = project.registry()
    assert len(reader.at(reader.end()).emitting_identities()) == 1
    project.cancel("old")
    for query in ("new", "newer"):
        project.register(query, ALL)
    project.delete(project.queries.queries_topic, 0, 3)
    live = reader.at(reader.end()).emitting_identities()
    assert [query for query, *_ in live] == ["newer"]


def test_events_are_compared_as_they_are_read_now(project):
    begun(project)
    project.declare(FLOW.replace("price: int", "price: int\n    region: str"))
    assert "the event class has changed" in project.balance().unknown
    project.begin()
    assert "no event was looked at" in project.balance().unknown
    project.declare(FLOW)
    project.begin()
    project.send(2)
    for partition in range(2):
        project.emit("all", partition, 5)
        project.commit(partition, offset=6)
    assert state(project) == ("balanced", 2, "")


def test_a_query_that_came_since_is_not_asked_for_and_one_that_went_is(project):
    begun(project)
    project.register("new", ALL)
    project.cancel("all")
    assert state(project) == ("balanced", 10, "")


def test_where_no_query_is_left_nothing_is_compared(project):
    begun(project)
    project.cancel("all")
    project.begin()
    assert [*matched_events_books(project.loaded, project.queries)] == []
    project.send(10)
    project.register("new", ALL)
    assert "has not seen the queries of now yet" in project.balance().unknown
    project.begin()
    assert "no event was looked at" in project.balance().unknown
    project.send(2)
    for partition in range(2):
        project.emit("new", partition, 10)
        project.commit(partition, offset=11)
    assert state(project) == ("balanced", 2, "")


def test_events_that_were_gone_before_they_were_looked_at_are_told(project):
    begun(project)
    project.send(8)
    project.delete(project.topic, 0, 7)
    project.register("another", ALL)
    project.begin()
    for query in ("all", "another"):
        project.emit(query, 0, 7, 8)
        project.emit(query, 1, *range(5, 9))
    for partition in range(2):
        project.commit(partition, offset=9)
    balance = project.balance()
    assert (balance.state, balance.matches, balance.skipped) == ("balanced", 2 * 6, 2)


def test_where_no_query_was_matched_nothing_is_skipped(project):
    begun(project)
    project.cancel("all")
    project.begin()
    project.send(10)
    project.delete(project.topic, 0, 8)
    project.register("new", ALL)
    project.begin()
    assert (project.balance().lag, project.balance().skipped) == (0, 0)


def test_where_no_query_was_matched_partitions_that_come_go_on_at_their_ends(project):
    begun(project)
    project.cancel("all")
    project.begin()
    grow_topic(project.config, project.topic, 3)
    project.send_to(2, 3)
    project.register("new", ALL)
    assert project.start(2)[0].offset == 3
    project.make_again(project.topic)
    project.send_to(0, 4)
    assert project.begin()[project.source(0)].offset == 4
    project.send_to(0, 1)
    project.make_again(project.topic)
    project.send_to(0, 4)
    assert project.start(0)[0].offset == 0


def test_matched_events_that_are_made_again_are_no_first_start(project):
    begun(project)
    grow_topic(project.config, project.topic, 3)
    project.send_to(2, 3)
    project.make_again(project.queries.matched_events_topic)
    assert not find_start(project.matched).is_first
    assert project.start(2)[0].offset == 0
    assert project.start(0)[0].offset == 5


def test_events_that_were_sent_and_are_deleted_since_are_not_skipped(project):
    begun(project)
    project.send(10)
    project.emit("all", 0, *range(5, 9))
    project.delete(project.topic, 0, 7)
    position, sent = project.start(0)
    assert (position.offset, position.skipped, sent.queries) == (8, 0, {"all"})
    project.delete(project.topic, 0, 10)
    position, sent = project.start(0)
    assert (position.offset, position.skipped, sent) == (10, 1, None)
    balance = project.balance()
    assert (balance.state, balance.events) == ("unknown", 5)
    assert f"Kafka has deleted 5 offsets of {project.topic}/0 after" in balance.unknown


def test_an_end_before_what_was_sent_is_asked_for_again(project, monkeypatch):
    """As a new leader says it for a moment after a failover."""
    begun(project)
    project.send(2)
    project.emit("all", 0, 5)
    ends = iter([4, 5])

    def latest_offsets(config, sources):
        latest = actual(config, sources)
        source = project.source(0)
        end, epoch = latest[source]
        return latest | {source: (next(ends, end), epoch)}

    actual = resume.latest_offsets
    monkeypatch.setattr(resume, "latest_offsets", latest_offsets)
    position, sent = project.start(0)
    assert (position.offset, sent.queries) == (5, {"all"})


def test_events_that_were_sent_and_cut_off_are_none_of_those_that_come(project):
    project.failover_seconds = 0.1
    begun(project)
    project.emit("all", 0, *range(5, 9))
    assert (
        "the next event was 9, and the topic has 0 to 5"
        in find_start(project.matched, 0.1).losses[0]
    )
    project.begin()
    project.send(8)
    assert project.start(0) == (project.start(0)[0], None)
    project.emit("all", 0, 5, 6)
    project.commit(0, offset=7)
    assert state(project) == ("balanced", 2 + 5, "")


def test_an_open_transaction_of_another_program_hides_nothing(project):
    begun(project)
    target = project.matched.target(project.source(0))
    other = confluent_kafka.Producer({**project.config, "transactional.id": project.topic})
    other.init_transactions(LIMIT_SECONDS)
    other.begin_transaction()
    other.produce(target.topic, b"{}", partition=target.partition)
    assert other.flush(FLUSH_SECONDS) == 0
    project.send(2)
    project.emit("all", 0, 5)
    assert project.start(0)[0].offset == 5
    project.commit(0, offset=6)
    balance = project.balance()
    other.abort_transaction(LIMIT_SECONDS)
    assert (balance.state, balance.events) == ("balanced", 6 + 5)


def test_a_process_that_has_sent_nothing_leaves_the_place_of_another(project):
    begun(project)
    begins = dict(committed_positions(project.matched, [project.source(0)]))
    emitter = EventEmitter(
        project.matched,
        project.registry(),
        lambda: NEWEST,
        nullcontext,
        project.loaded.settings.restart,
        project.loaded.settings.state,
    )
    emitter.stop()
    emitter.run(lambda _: None)
    assert committed_positions(project.matched, [project.source(0)]) == begins


def test_an_offset_that_an_operator_has_set_is_kept_and_repeats_nothing(project):
    begun(project)
    source = project.source(0)
    place = confluent_kafka.TopicPartition(source.topic, source.partition, 2)
    commit(project.config, project.matched.group, [place])
    start = find_start(project.matched)
    assert (start.positions[source].offset, start.sent[source].queries) == (4, {"all"})


def test_a_log_of_events_that_was_cut_is_compared_from_its_end(project):
    """Records of events that are gone are behind: offsets that others have now."""
    project.failover_seconds = 0.1
    begun(project)
    project.emit("all", 0, *range(5, 9))
    project.commit(0, offset=9)
    project.begin()
    project.send(4)
    project.emit("all", 0, 5, 6)
    project.emit("all", 1, 5, 6)
    for partition in range(2):
        project.commit(partition, offset=7)
    assert state(project) == ("balanced", 2 + 7, "")


def test_an_unknown_partition_hides_no_difference_of_another(project):
    begun(project)
    project.send(2)
    project.commit(0, offset=6)
    target = project.matched.target(project.source(1))
    project.delete(target.topic, target.partition, 5)
    balance = project.balance()
    assert balance.state == "unbalanced"
    assert project.differences() == {(1, 0)}
    assert balance.unknown == f"Kafka has deleted the matched events of {project.topic}/1"


def test_a_partition_without_matches_is_balanced_where_others_sent_are_deleted(project):
    project.register("cheap", CHEAP)
    project.begin()
    project.send(10, item="b")
    target = project.matched.target(project.source(1))
    sender = connected_producer(project.config)
    sender.produce(target.topic, b"{}", partition=target.partition)
    assert sender.flush(FLUSH_SECONDS) == 0
    project.delete(target.topic, target.partition, 1)
    for partition in range(2):
        project.commit(partition, offset=5)
    assert state(project) == ("balanced", 10, "")


def test_what_was_deleted_of_matched_events_is_left_out(project):
    begun(project)
    target = project.matched.target(project.source(0))
    project.delete(target.topic, target.partition, 2)
    assert state(project) == ("balanced", 2 + 5, "")


def test_a_record_of_a_later_event_tells_nothing_of_those_before(project):
    begun(project)
    project.send(2)
    project.emit("all", 0, 5)
    target = project.matched.target(project.source(0))
    project.delete(target.topic, target.partition, 5)
    balance = project.balance()
    assert (balance.state, balance.events) == ("unknown", 5)
    assert balance.unknown == f"Kafka has deleted the matched events of {project.topic}/0"


def test_events_that_are_deleted_while_it_reads_are_not_too_many(project, monkeypatch):
    begun(project)
    sent_behind = module.sent_behind

    def read(*arguments):
        yield from sent_behind(*arguments)
        project.delete(project.topic, 0, 3)

    monkeypatch.setattr(module, "sent_behind", read)
    balance = project.balance()
    assert (balance.state, balance.events, balance.differences) == ("unknown", 5, ())
    assert "while they were compared: ask again" in balance.unknown
    assert state(project) == ("balanced", 2 + 5, "")


def test_matched_events_that_are_made_again_begin_anew(project):
    begun(project)
    project.make_again(project.queries.matched_events_topic)
    assert "was recreated" in project.balance().unknown
    project.begin()
    assert "no event was looked at" in project.balance().unknown
    project.send(8)
    for partition in range(2):
        project.emit("all", partition, *range(5, 9))
        project.commit(partition, offset=9)
    assert state(project) == ("balanced", 8, "")


def test_events_that_are_made_again_begin_anew(project):
    begun(project)
    project.make_again(project.topic)
    project.sent = 0
    assert "has not looked at" in project.balance().unknown
    project.begin()
    project.send(4)
    for partition in range(2):
        project.emit("all", partition, 0, 1)
        project.commit(partition, offset=2)
    assert state(project) == ("balanced", 4, "")


def test_partitions_that_are_new_are_told(project):
    begun(project)
    grow_topic(project.config, project.topic, 3)
    balance = project.balance()
    assert (balance.state, balance.events, balance.lag) == ("unknown", 10, 0)
    assert f"has not looked at {project.topic}/2 yet" in balance.unknown


def test_positions_of_different_queries_are_unknown(project):
    begun(project)
    [position] = committed_positions(project.matched, [project.source(1)]).values()
    other = replace(position, queries=replace(position.queries, hash="other"))
    commit_positions(project.matched, {project.source(1): other})
    assert "different queries" in project.balance().unknown


def test_a_topic_of_queries_that_was_made_again_is_unknown(project):
    begun(project)
    project.make_again(project.queries.queries_topic)
    assert "was recreated" in project.balance().unknown


def test_queries_that_were_left_out_are_not_missing(project, monkeypatch):
    monkeypatch.setattr(rules_module, "MAX_SHAPES", 1)
    monkeypatch.setattr("headrace.queries.emit.emitting_queries.MAX_SHAPES", 1)
    project.register("all", ALL)
    project.register("cheap", CHEAP)
    project.begin()
    project.send(10)
    for partition in range(2):
        project.commit(partition, offset=5)
    assert "shapes are left out" in project.balance().unknown
    project.cancel("all")
    assert project.balance().state == "unknown"
