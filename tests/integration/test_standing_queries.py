"""Standing queries on the real broker and Spark: registered, matched, added up, answered."""

import itertools
import json
import shutil
import threading
import time
import uuid
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import confluent_kafka
import msgspec
import pytest
from tests.integration.flow import Flow
from tests.integration.test_sinks import records
from tests.kafka_topics import wait_until_settled
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace import BatchLimits, Lake, StandingQueries, Topic
from headrace.errors import MatchedRecordsDeletedError
from headrace.kafka.client.admin_requests import admin_request, describe
from headrace.kafka.client.clients import producer
from headrace.ledger.request import ReconcileRequest
from headrace.ledger.sums import Hop
from headrace.ledger.windows import WindowState
from headrace.model import TopicPartition
from headrace.model.partitioning import partition_of_key
from headrace.operations.reconciling.reconcile import reconcile
from headrace.project.loaded import LoadedProject
from headrace.queries.book import query_books
from headrace.queries.match.sink import MatchQueries
from headrace.queries.records.counts import TopicCounts
from headrace.queries.records.matched import Tick, WindowPartial, decode_matched, window_key
from headrace.queries.records.result import decode_result
from headrace.queries.registry.record import RegisteredQuery, encode_query
from headrace.queries.registry.topic import write_registry
from headrace.queries.results.batch_queries import BatchQueriesCheck
from headrace.queries.topics import ensure_query_topics
from headrace.queries.windows.instance import instance, quiet, restoring
from headrace.queries.windows.instance.instance import AggregatorInstance, InstanceTiming
from headrace.queries.windows.instance.owned import OwnedPartition
from headrace.queries.windows.instance.restoring import OpenTransactionError, read_snapshots
from headrace.service.status import State
from headrace.settings.model import KafkaSettings
from headrace.sinks.topic_positions import TopicPositions

BEGIN = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=30)


class View:
    id: str
    at: datetime
    country: str
    price: float | None


class Queries:
    """Standing queries of a topic of views, and the stages that answer them."""

    def __init__(self, flow):
        self.flow = flow
        self.began = datetime.now(UTC)
        self.declared = StandingQueries(f"ads-{uuid.uuid4().hex[:8]}", partitions=3)
        self.topic = Topic(f"views-{uuid.uuid4().hex[:8]}", event=View, event_time="at")
        flow.create(self.topic.name, 1)
        flow.create(self.topic.dead_letters, 1)
        ensure_query_topics(flow.client, self.declared)
        self.pipeline = flow.pipeline(
            "match", source=self.topic, sink=MatchQueries(self.declared), limits=BatchLimits()
        )

    def register(self, query_id, text, *, revision=1, ttl=timedelta(hours=1)):
        """Returns the offset of the record."""
        now = datetime.now(UTC)
        text = text.replace("views", f'"{self.topic.name}"')
        query = RegisteredQuery(
            query_id, text, self.topic.name, revision, self.began, now, now + ttl
        )
        topic = self.declared.queries_topic
        return write_registry(self.flow.client, topic, *encode_query(query))

    def register_all(self, texts):
        """Registers queries by id, whose records follow one another."""
        now = datetime.now(UTC)
        pairs = [
            encode_query(
                RegisteredQuery(
                    query_id,
                    text.replace("views", f'"{self.topic.name}"'),
                    self.topic.name,
                    1,
                    now,
                    now,
                    None,
                )
            )
            for query_id, text in texts.items()
        ]
        keys, values = zip(*pairs, strict=True)
        self.flow.send(values, topic=self.declared.queries_topic, keys=keys)

    def cancel(self, query_id):
        topic = self.declared.queries_topic
        write_registry(self.flow.client, topic, query_id.encode(), None)

    def send(self, *views):
        values = [
            json.dumps(
                {
                    "id": f"v{number}",
                    "at": (BEGIN + timedelta(seconds=second)).isoformat(),
                    "country": country,
                    "price": price,
                }
            ).encode()
            for number, (second, country, price) in enumerate(views)
        ]
        self.flow.send(values, topic=self.topic.name)

    def match(self):
        """Matches what is there."""
        outcome = self.flow.run(self.pipeline)[self.pipeline.name]
        assert outcome.state is State.FINISHED, outcome.reason
        wait_until_settled(self.flow.client, self.declared.matched_topic)

    def aggregate(self, until, timing=InstanceTiming()):
        """Runs an instance until its status is as wanted."""
        schemas = {self.topic.name: self.topic.schema}
        aggregator = AggregatorInstance(self.flow.client, self.declared, schemas, timing)

        def observe(status):
            if until(status):
                aggregator.stop()

        limit = threading.Timer(LIMIT_SECONDS, aggregator.stop)
        limit.start()
        try:
            aggregator.run(observe)
        finally:
            limit.cancel()
        for topic in (self.declared.results_topic, self.declared.snapshots_topic):
            wait_until_settled(self.flow.client, topic)
        return aggregator.status()

    def delete_records(self, topic):
        """Deletes all records of a topic, as retention does."""
        for partition in describe(self.flow.client, [topic])[topic].all_partitions:
            end = confluent_kafka.TopicPartition(
                topic, partition.partition, confluent_kafka.OFFSET_END
            )
            admin_request(
                self.flow.client, lambda admin, end=end: admin.delete_records([end])[end].result()
            )

    def delete_topic(self):
        """Deletes the topic of events."""
        name = self.topic.name
        admin_request(self.flow.client, lambda admin: admin.delete_topics([name])[name].result())

    def ticks(self):
        """The ticks of one partition of the matched topic."""
        return [each for each in self.matched() if isinstance(each, Tick)]

    def matched(self):
        """The records of the matched topic, ticks of one partition alone."""
        found = records(self.flow.client, self.declared.matched_topic)
        decoded = [(record.partition(), decode_matched(record.value())) for record in found]
        return [record for p, record in decoded if isinstance(record, WindowPartial) or p == 0]

    def matches(self, query_id):
        """How many events matched a query."""
        added = (each for each in self.matched() if isinstance(each, WindowPartial))
        return sum(each.events for each in added if each.query == query_id)

    def results(self):
        return [
            decode_result(record.value())
            for record in records(self.flow.client, self.declared.results_topic)
        ]


@pytest.fixture
def queries(broker, spark, tmp_path):
    return Queries(Flow(broker, spark, tmp_path, partitions=1))


def test_a_query_is_answered_for_each_window(queries):
    queries.register("q", "SELECT count(*), sum(price) AS total FROM views FACET country")
    queries.send((0, "PL", 1.5), (10, "PL", 2), (20, "DE", None), (70, "DE", 4))
    queries.match()
    queries.send((130, "FR", 1), (131, "FR", 1))
    queries.match()
    queries.aggregate(lambda status: status.results >= 3)
    answers = {(r.begin, r.facets["country"]): dict(r.values) for r in queries.results()}
    first, second = (
        (BEGIN + timedelta(minutes=n)).isoformat().replace("+00:00", "Z") for n in (0, 1)
    )
    assert answers == {
        (first, "PL"): {"count(*)": 2, "total": 3.5},
        (first, "DE"): {"count(*)": 1, "total": None},
        (second, "DE"): {"count(*)": 1, "total": 4.0},
    }


@contextmanager
def open_transaction(queries, topic, partition):
    """Within the block, a transaction of another program is open in a partition."""
    tuning = {"transactional.id": queries.declared.name, "message.timeout.ms": "30000"}
    stranger = producer(queries.flow.client, tuning)
    stranger.init_transactions(LIMIT_SECONDS)
    stranger.begin_transaction()
    stranger.produce(topic, b"{}", partition=partition)
    assert stranger.flush(FLUSH_SECONDS) == 0
    yield
    stranger.abort_transaction(LIMIT_SECONDS)


def test_a_transaction_that_is_left_open_among_ended_windows_is_named_until_it_ends(queries):
    queries.register("q", "SELECT count(*) FROM views")
    queries.send((0, "PL", 1), (70, "PL", 1), (71, "PL", 1))
    queries.match()
    timing = InstanceTiming(max_silence_seconds=3.0)
    ended = queries.declared.ended_topic
    with open_transaction(queries, ended, 2):
        waiting = queries.aggregate(lambda status: f"{ended}[2]" in status.reason, timing).reason
    assert f"nothing of {ended}[2] was read" in waiting
    queries.send((140, "PL", 1), (141, "PL", 1))
    queries.match()
    queries.aggregate(lambda status: status.results and len(queries.results()) == 2, timing)
    assert [result.values["count(*)"] for result in queries.results()] == [1, 2]


def test_a_topic_with_an_open_transaction_is_not_quiet(queries, monkeypatch):
    monkeypatch.setattr(quiet, "QUIET_MS", 1_000)
    queries.register("q", "SELECT count(*) FROM views")
    queries.send((0, "PL", 1), (0, "PL", 1), (0, "PL", 1))
    queries.match()
    seen = []

    def has_seen_event_time(status):
        seen.extend(status.event_ms.values())
        return len(seen) > 50

    def goes_on(status):
        seen.extend(status.event_ms.values())
        return max(seen) > seen[0]

    with open_transaction(queries, queries.topic.name, 0):
        queries.aggregate(has_seen_event_time)
    assert len(seen) > 50
    assert len(set(seen)) == 1
    queries.match()
    queries.aggregate(goes_on)
    assert len(set(seen)) > 1


def test_a_transaction_that_is_left_open_among_snapshots_is_named(queries, monkeypatch):
    snapshots = TopicPartition(queries.declared.snapshots_topic, 1)
    with monkeypatch.context() as patch:
        patch.setattr(restoring, "OPEN_TRANSACTION_SECONDS", 2.0)
        with (
            open_transaction(queries, snapshots.topic, snapshots.partition),
            pytest.raises(OpenTransactionError, match=r"open in .*\[1\] at offset 0"),
        ):
            read_snapshots(queries.flow.client, snapshots)
    assert read_snapshots(queries.flow.client, snapshots).position is None


def test_a_batch_that_is_repeated_adds_nothing(queries):
    queries.register("q", "SELECT count(*) FROM views")
    queries.send((0, "PL", 1), (1, "PL", 2))
    queries.match()
    queries.flow.forget_newest_commit("match")
    queries.send((2, "PL", 3))
    queries.match()
    assert queries.matches("q") == 3


@pytest.mark.parametrize("is_reset", [True, False])
def test_a_pipeline_without_its_checkpoint_goes_on_at_the_recorded_positions(queries, is_reset):
    queries.register("q", "SELECT count(*) FROM views")
    queries.send((0, "PL", 1), (1, "PL", 2))
    queries.match()
    shutil.rmtree(queries.flow.checkpoint("match").parent)
    if is_reset:
        queries.flow.reset(queries.pipeline, "table")
    queries.send((2, "PL", 3))
    queries.match()
    assert queries.matches("q") == 3
    ticks = list(queries.ticks())
    assert ticks
    assert all(tick.planned_ms and tick.positions for tick in ticks)


def test_a_batch_that_is_committed_meanwhile_is_neither_missing_nor_too_many(queries, monkeypatch):
    late = {"late_data": Lake("late"), "allowed_lateness": timedelta(minutes=1)}
    queries.pipeline = queries.flow.pipeline(
        "match", source=queries.topic, sink=MatchQueries(queries.declared), **late
    )
    queries.register("q", "SELECT count(*) FROM views")
    queries.send(*((0, "PL", 1) for _ in range(5)))
    queries.match()
    read, batches = TopicPositions.versions, [1, 2, 3]

    def read_before_a_batch(positions, names):
        found = read(positions, names)
        if batches:
            second, later = batches.pop(), batches.copy()
            batches.clear()
            queries.send((second, "PL", 1), (second - 7_200, "PL", 1))
            queries.match()
            batches.extend(later)
        return found

    monkeypatch.setattr(TopicPositions, "versions", read_before_a_batch)
    kafka = KafkaSettings(bootstrap_servers=queries.flow.broker.bootstrap_servers)
    settings = queries.flow.settings(kafka=kafka)
    project = LoadedProject(settings, (queries.pipeline,))
    request = ReconcileRequest(recount=True)
    (balance,) = reconcile(project, [queries.pipeline], request).books
    assert (balance.breaks, batches) == ((), [])
    assert WindowState.UNBALANCED not in {window.state for window in balance.windows}
    assert sum(window.read for window in balance.windows) >= 9


def test_a_query_counts_from_its_registration_to_its_end(queries):
    queries.send((0, "PL", 1))
    queries.match()
    queries.register("cancelled", "SELECT count(*) FROM views")
    queries.register("short", "SELECT count(*) FROM views", ttl=timedelta(seconds=8))
    expires = time.time() + 8
    queries.send((1, "PL", 1), (2, "PL", 1))
    queries.match()
    queries.cancel("cancelled")
    # Its time passes while no pipeline runs.
    wait_for(lambda: time.time() > expires)
    queries.send((3, "PL", 1))
    queries.match()
    assert (queries.matches("cancelled"), queries.matches("short")) == (2, 2)


def test_an_update_in_the_middle_of_a_window_begins_another_result(queries):
    queries.register("q", "SELECT count(*) FROM views")
    queries.send((0, "PL", 1), (1, "PL", 2))
    queries.match()
    queries.register("q", "SELECT sum(price) FROM views", revision=2)
    queries.send((2, "PL", 3), (3, "DE", 4))
    queries.match()
    queries.send((90, "PL", 1), (91, "PL", 1))
    queries.match()
    queries.aggregate(lambda status: status.results >= 2)
    answers = {result.revision: dict(result.values) for result in queries.results()}
    assert answers == {1: {"count(*)": 2}, 2: {"sum(price)": 7.0}}


def test_a_query_that_is_none_harms_no_other(queries):
    topic = queries.declared.queries_topic
    for value in (b"{", b'{"id": "x"}', b"\xff"):
        write_registry(queries.flow.client, topic, b"x", value)
    queries.register("nonsense", "SELECT count(*) FROM views WHERE nothing = 1")
    queries.register("q", "SELECT count(*) FROM views")
    queries.send((0, "PL", 1))
    queries.match()
    assert queries.matches("q") == 1


def test_each_of_a_thousand_queries_counts_from_one_offset_on(queries):
    registrations, offsets = 1_000, {}
    stop = threading.Event()
    limits = BatchLimits(max_wait=timedelta(milliseconds=100))
    pipeline = replace(queries.pipeline, limits=limits)
    matched = 0

    def observe(progress):
        nonlocal matched
        matched = progress["match"].rows_in

    options = {"once": False, "stop": stop, "observe": observe}
    matching = threading.Thread(target=queries.flow.run, args=[pipeline], kwargs=options)
    matching.start()
    sent = to_reach = 0

    def is_reached():
        return matched >= to_reach

    try:
        for number in range(0, registrations, 20):
            # No more than four groups ahead of a batch: they begin with more than ten batches.
            if number % 40 == 0:
                wait_for(is_reached, lambda: matched)
                to_reach = sent
            some = [f"q{query}" for query in range(number, number + 20)]
            queries.register_all(
                {
                    name: f"SELECT count(*) FROM views WHERE country = 'c{int(name[1:]) % 10}'"
                    for name in some
                }
            )
            # The topic of queries has no other records.
            offsets |= {name: number + place for place, name in enumerate(some)}
            queries.send(*((sent + n, f"c{n % 10}", 1) for n in range(50)))
            sent += 50
        queries.send(*((sent + n, f"c{n % 10}", 1) for n in range(50)))
        sent = to_reach = sent + 50
        wait_for(is_reached, lambda: matched)
    finally:
        stop.set()
        matching.join()
    counted = Counter()
    begin, starts = 0, {}
    for record in queries.matched():
        if isinstance(record, WindowPartial):
            counted[record.query] += record.events
        elif record.registry_offset:
            for query, offset in offsets.items():
                if offset < record.registry_offset:
                    starts.setdefault(query, begin)
            begin = record.positions[0]
    assert set(starts) == set(offsets)
    assert len(set(starts.values())) > 10
    # The view at an offset is that of country offset % 10.
    expected = {
        query: sum(offset % 10 == int(query[1:]) % 10 for offset in range(start, sent))
        for query, start in starts.items()
    }
    assert counted == {query: count for query, count in expected.items() if count}


def test_a_batch_without_events_says_when_it_was_planned_and_which_queries_it_has(queries):
    offset = queries.register("q", "SELECT count(*) FROM views")
    queries.send((0, "PL", 1))
    queries.match()
    queries.flow.send([b"no event"], topic=queries.topic.name)
    queries.match()
    ticks = queries.ticks()
    assert [sum(tick.positions.values()) for tick in ticks[-2:]] == [1, 2]
    assert [tick.registry_offset for tick in ticks[-2:]] == [offset + 1] * 2
    assert queries.began.timestamp() * 1000 < ticks[-2].planned_ms < ticks[-1].planned_ms
    live = describe(queries.flow.client, [queries.topic.name])[queries.topic.name]
    assert {tick.topic_id for tick in ticks} == {live.topic_id}


def test_batches_say_which_queries_they_had(queries):
    queries.register("q", "SELECT count(*) FROM views")
    queries.register("cancelled", "SELECT count(*) FROM views")
    queries.register("short", "SELECT count(*) FROM views", ttl=timedelta(seconds=8))
    expires = time.time() + 8
    queries.cancel("cancelled")
    queries.send((0, "PL", 1))
    queries.match()
    check = BatchQueriesCheck(queries.flow.client, queries.declared, queries.topic)
    before = queries.ticks()[-1]
    assert check.had_registered("match", before) is True
    wait_for(lambda: time.time() > expires)
    queries.send((1, "PL", 1))
    queries.match()
    after = queries.ticks()[-1]
    assert len({before.rules, after.rules, ""}) == 3
    assert check.had_registered("match", before) is True
    assert check.had_registered("match", after) is True
    others = msgspec.structs.replace(after, rules=before.rules)
    assert check.had_registered("match", others) is False
    queries.register("new", "SELECT count(*) FROM views")
    assert check.had_registered("match", after) is True
    assert check.had_registered("match", others) is None


def balance(queries, **options):
    topics = [queries.topic.name]
    [balance] = query_books(queries.flow.client, queries.declared, topics, **options)
    return balance


def test_every_match_is_accounted_for(queries):
    for query in ("a", "b", "c"):
        queries.register(query, "SELECT count(*) FROM views FACET country")
    assert balance(queries).state is WindowState.UNKNOWN
    queries.send((0, "PL", 1), (1, "DE", 2), (70, "PL", 3), (71, "PL", 4))
    queries.match()
    queries.send((10, "PL", 5))
    queries.match()
    queries.aggregate(lambda status: status.results >= 6 and status.late)
    known = balance(queries)
    assert (known.state, known.differences, known.unknown) == (WindowState.BALANCED, (), "")
    assert known.counts == TopicCounts(sent=15, taken=15, ended=6, late=3, open=6)
    assert (known.in_results, known.waiting) == (6, 0)
    [other] = query_books(queries.flow.client, queries.declared, ["others"])
    assert other.unknown == "no batch of its events was matched yet"


def test_a_snapshot_of_several_transactions_is_whole_after_a_restart(queries, monkeypatch):
    monkeypatch.setattr(OwnedPartition, "max_transaction_bytes", 1_000)
    queries.register_all({f"q{number}": "SELECT count(*) FROM views" for number in range(50)})
    queries.send((0, "PL", 1), (1, "PL", 1))
    queries.match()
    queries.aggregate(lambda status: status.windows == 50)
    queries.send((70, "PL", 1), (71, "PL", 1))
    queries.match()
    queries.aggregate(lambda status: status.results >= 50)
    assert [result.events for result in queries.results()] == [2] * 50
    assert balance(queries).state is WindowState.BALANCED


def test_what_no_instance_takes_is_not_balanced(queries):
    queries.register("q", "SELECT count(*) FROM views")
    queries.send((0, "PL", 1))
    queries.match()
    queries.aggregate(lambda status: status.windows)
    assert balance(queries, max_age_seconds=0.0).state is WindowState.BALANCED
    queries.send((1, "PL", 1))
    queries.match()
    old = balance(queries, max_age_seconds=0.0)
    assert old.state is WindowState.UNKNOWN
    assert old.unknown == "no instance takes what was matched in partitions 0, 1, 2"


def test_matches_that_are_too_many_are_told_with_their_partition(queries):
    queries.register("q", "SELECT count(*) FROM views")
    queries.send((0, "PL", 1), (1, "DE", 2))
    queries.match()
    topic = queries.declared.matched_topic
    [record] = [each for each in queries.matched() if isinstance(each, WindowPartial)]
    key = window_key(record.query, record.begin_us)
    queries.flow.send([msgspec.json.encode(record)], topic=topic, keys=[key])
    queries.aggregate(lambda status: status.windows)
    assert "are of no batch that has ended" in balance(queries).unknown
    queries.send((2, "PL", 1))
    queries.match()
    seen = [{}]

    def is_unbalanced(status):
        seen.append(status.unbalanced)
        return any(status.unbalanced.values())

    queries.aggregate(is_unbalanced)
    assert seen[-1] == {queries.topic.name: 2}
    [difference] = balance(queries).differences
    partition = partition_of_key(key, queries.declared.partitions)
    assert (difference.hop, difference.number) == (Hop.MATCHED_RECORDS, -2)
    assert difference.partition == f"{topic}/{partition}"


def test_a_deleted_topic_of_events_ends_no_instance(queries):
    queries.register("q", "SELECT count(*) FROM views")
    queries.send((0, "PL", 1))
    queries.match()
    queries.delete_topic()
    looked = itertools.count()
    # It asks for the end of the topic each second.
    status = queries.aggregate(lambda status: status.windows and next(looked) > 30)
    assert status.reason == ""
    queries.aggregate(lambda status: status.windows and next(looked) > 60)


def matched_and_answered(queries):
    """Matches an event, and has an instance take all that there is; the window stays open."""
    queries.register("q", "SELECT count(*) FROM views")
    queries.send((0, "PL", 1))
    queries.match()
    looked = itertools.count()
    queries.aggregate(lambda status: status.windows and next(looked) > 10)


def test_an_instance_goes_on_behind_deleted_records_that_were_taken(queries):
    matched_and_answered(queries)
    queries.delete_records(queries.declared.matched_topic)
    queries.send((130, "PL", 1), (131, "PL", 1))
    queries.match()
    queries.aggregate(lambda status: status.results)
    assert [result.events for result in queries.results()] == [1]


def test_an_instance_refuses_to_go_on_behind_deleted_records_that_no_one_took(queries):
    matched_and_answered(queries)
    queries.send((1, "PL", 1))
    queries.match()
    queries.delete_records(queries.declared.matched_topic)
    with pytest.raises(MatchedRecordsDeletedError) as refused:
        queries.aggregate(lambda _: False)
    assert f"{queries.declared.snapshots_topic}[" in refused.value.remedy


def test_an_instance_goes_on_after_a_quiet_day(queries, caplog):
    matched_and_answered(queries)
    for topic in (queries.declared.matched_topic, queries.declared.ended_topic):
        queries.delete_records(topic)
    queries.send((190, "PL", 1), (300, "PL", 1), (301, "PL", 1))
    queries.match()
    queries.aggregate(lambda status: status.results >= 2)
    assert [result.events for result in queries.results()] == [1, 1]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_windows_whose_records_are_deleted_before_they_have_results_are_told(queries, caplog):
    queries.register("q", "SELECT count(*) FROM views CLOSE BY CLOCK 1 second")
    queries.send((0, "PL", 1))
    queries.match()
    # Three ticks and the event: the window ends once all of them are taken.
    queries.aggregate(lambda status: status.records >= 4 and not status.windows)
    assert queries.results() == []
    queries.delete_records(queries.declared.ended_topic)
    queries.aggregate(lambda status: any(status.unbalanced.values()))
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    lost = f"has sent 1 matches of {queries.topic.name} in ended windows, and 0 have come"
    assert any(lost in line for line in told)
    [difference] = balance(queries).differences
    assert (difference.hop, difference.number) == (Hop.ENDED_WINDOWS, 1)
    partition = partition_of_key(b"q", queries.declared.partitions)
    assert difference.partition == f"{queries.declared.ended_topic}/{partition}"


def test_windows_that_another_program_has_sent_are_too_many(queries):
    queries.register("q", "SELECT count(*) FROM views")
    queries.send((0, "PL", 1), (70, "PL", 1), (71, "PL", 1))
    queries.match()
    queries.aggregate(lambda status: status.results)
    ended = queries.declared.ended_topic
    wait_until_settled(queries.flow.client, ended)
    [window] = [each for each in records(queries.flow.client, ended) if each.key()]
    queries.flow.send([window.value()], topic=ended, keys=[window.key()])
    queries.aggregate(lambda status: any(status.unbalanced.values()))
    [difference] = balance(queries).differences
    assert (difference.hop, difference.number) == (Hop.ENDED_WINDOWS, -1)


def test_ended_windows_that_no_instance_takes_are_not_balanced(queries):
    matched_and_answered(queries)
    queries.send((70, "PL", 1), (71, "PL", 1))
    queries.match()
    ended = partition_of_key(b"q", queries.declared.partitions)
    with open_transaction(queries, queries.declared.ended_topic, ended):
        queries.aggregate(lambda status: status.records >= 2)
    assert (balance(queries).in_results, balance(queries).waiting) == (0, 1)
    assert balance(queries).state is WindowState.BALANCED
    unknown = balance(queries, max_age_seconds=0.0).unknown
    assert unknown == f"no instance takes the windows that have ended, in partitions {ended}"


def test_what_was_matched_while_no_instance_ran_belongs_to_windows_that_end_by_quiet_time(
    queries, monkeypatch
):
    queries.register("q", "SELECT count(*) FROM views CLOSE BY QUIET TIME 300 seconds")
    queries.send((0, "PL", 1))
    queries.match()
    queries.aggregate(lambda status: status.windows)
    queries.send((1, "PL", 2))
    queries.match()
    ahead_ms, now_in_ms = 301_000, instance.now_in_ms
    monkeypatch.setattr(instance, "now_in_ms", lambda: now_in_ms() + ahead_ms)

    def is_answered(status):
        nonlocal ahead_ms
        if status.records:  # each look after it is beyond one more quiet time
            ahead_ms += 301_000
        return status.results

    # The reader gives nothing at first, as it may after it was assigned.
    queries.aggregate(is_answered, InstanceTiming(take_seconds=0.001))
    assert [result.events for result in queries.results()] == [2]


def test_an_instance_tells_that_snapshots_and_records_are_gone_and_goes_on(queries, caplog):
    matched_and_answered(queries)
    for topic in (queries.declared.snapshots_topic, queries.declared.matched_topic):
        queries.delete_records(topic)
    looked = itertools.count()
    queries.aggregate(lambda status: status.partitions and next(looked) > 20)
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert any(queries.declared.matched_topic in line and "are lost" in line for line in told)
    # What it has told is not a loss once more.
    queries.send((60, "PL", 1))
    queries.match()
    queries.send((190, "PL", 1), (191, "PL", 1))
    queries.match()
    queries.aggregate(lambda status: status.results)
    assert [result.events for result in queries.results()] == [1]
