"""A log that was cut and grew again is noticed by each that keeps a position in it."""

import asyncio
import threading
import time
import uuid

import confluent_kafka
import msgspec
import pytest
from tests.integration import test_merger, test_mirror
from tests.integration.cut_log import CutLog
from tests.integration.dispatcher_project import DispatcherInProcess
from tests.integration.emit_project import ALL, EmitProject
from tests.integration.instances import Bench, drill, recorder, running, until_brokers_say
from tests.kafka_topics import make_topic
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS

from headrace import StandingQueries
from headrace.control.worker_reset import reset
from headrace.errors import (
    MergerLossError,
    MirrorTruncatedError,
    QueryTopicTruncatedError,
    WorkerTruncatedError,
)
from headrace.kafka.client import client_config, connected_producer
from headrace.kafka.dead_letter_writer import dead_letter_records
from headrace.kafka.replay import DeadLetterFilter, replay
from headrace.merger.plan import ClockSource, MergePlan
from headrace.mirror.link import Link
from headrace.model import DeadLetter, TopicPartition
from headrace.queries.instance.instance import AggregatorInstance
from headrace.queries.matched_events.positions import commit_positions, committed_positions
from headrace.queries.records.matched import Tick
from headrace.queries.topics import ensure_query_topics
from headrace.settings import KafkaSettings, Settings


@pytest.fixture(scope="module")
def own(start_cluster):
    return start_cluster()


@pytest.fixture
def bench(own):
    return Bench(own.bootstrap_servers)


def work(bench, worker, done):
    """Runs an instance until ``done()``."""

    async def run():
        async with running(bench.instance(worker)):
            await until_brokers_say(done)

    drill(run())


@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_worker_does_not_skip_what_follows_the_cut(bench, own, tmp_path, is_transactional):
    seen, task = recorder()
    worker, log = bench.worker(task), CutLog(own, bench.topic.name)
    bench.send(100)
    log.remember()
    bench.send(50, first=100)
    end = 150
    if is_transactional:
        end += send_in_transaction(bench)
    work(bench, worker, lambda: bench.committed(worker) == {0: end})

    log.cut()
    bench.send(80, first=1_000)

    with pytest.raises(WorkerTruncatedError) as refused:
        drill(bench.instance(worker).run())
    assert (refused.value.topic, refused.value.cut_offset) == (bench.topic.name, 100)
    kafka = KafkaSettings(bootstrap_servers=own.bootstrap_servers)
    settings = Settings(tmp_path, "cut", (), str(tmp_path), kafka=kafka)
    assert reset(settings, worker, to="committed", dry_run=False).begins == {
        f"{bench.topic.name}/0": 100
    }
    seen.clear()
    work(bench, worker, lambda: bench.committed(worker) == {0: 180})
    assert [*seen.values()] == [list(range(1_000, 1_080))]


def send_in_transaction(bench):
    """Sends a record and the marker behind it; returns how many offsets they take."""
    conf = {**bench.client, "transactional.id": bench.topic.name}
    sender = confluent_kafka.Producer(conf)
    sender.init_transactions(LIMIT_SECONDS)
    sender.begin_transaction()
    sender.produce(bench.topic.name, b"150", partition=0)
    sender.commit_transaction(LIMIT_SECONDS)
    return 2


def test_a_worker_that_runs_notices_a_cut(bench, own):
    worker, log = bench.worker(recorder()[1]), CutLog(own, bench.topic.name)
    bench.send(100)
    log.remember()
    bench.send(50, first=100)

    async def run():
        instance = asyncio.create_task(bench.instance(worker).run())
        await until_brokers_say(lambda: bench.committed(worker) == {0: 150})
        await asyncio.to_thread(log.cut)
        await asyncio.to_thread(bench.send, 80, first=1_000)
        await instance

    with pytest.raises(WorkerTruncatedError):
        drill(run())


class Aggregating:
    """Instances of standing queries, and what they take of the matched topic."""

    def __init__(self, running, queries):
        self.client = {"bootstrap.servers": running.bootstrap_servers}
        self.queries = queries
        ensure_query_topics(self.client, self.queries)

    def send(self, ticks):
        """Sends as many records to the matched topic."""
        sender = confluent_kafka.Producer(self.client)
        tick = msgspec.json.encode(Tick("views", "match", None, 0, {}, 0))
        for _ in range(ticks):
            sender.produce(self.queries.matched_topic, tick, partition=0)
        assert sender.flush(FLUSH_SECONDS) == 0

    def take(self, records):
        """Runs an instance until it has taken as many."""
        instance = AggregatorInstance(self.client, self.queries, {})
        limit = threading.Timer(LIMIT_SECONDS, instance.stop)
        limit.start()
        try:
            instance.run(lambda status: instance.stop() if status.records >= records else None)
        finally:
            limit.cancel()
        assert instance.status().records == records


def test_standing_queries_do_not_skip_what_follows_the_cut(own):
    queries = StandingQueries(f"ads-{uuid.uuid4().hex[:8]}", partitions=1)
    aggregating = Aggregating(own, queries)
    log = CutLog(own, aggregating.queries.matched_topic)
    aggregating.send(100)
    log.remember()
    aggregating.send(50)
    aggregating.take(150)

    log.cut()
    aggregating.send(80)

    with pytest.raises(QueryTopicTruncatedError) as refused:
        aggregating.take(80)
    assert refused.value.cut_offset == 100


def test_a_mirror_does_not_skip_what_follows_the_cut(own, broker, topic):
    source, target = (client_of(running) for running in (own, broker))
    name = topic("clicks")
    copies = {name: f"waw.{name}"}
    test_mirror.make(source, name)
    test_mirror.make(target, copies[name])
    link = Link(name, f"headrace.mirror.{name}", "waw", "central", source, target, copies)
    log = CutLog(own, name)
    test_mirror.write(source, name, range(100))
    log.remember()
    test_mirror.write(source, name, range(100, 150))
    with test_mirror.Running(link) as running:
        running.until(lambda progress: progress.moved.records == 150)

    log.cut()
    test_mirror.write(source, name, range(1_000, 1_080))

    with test_mirror.Running(link) as running:
        running.until(lambda progress: progress.refused)
        refusal = running.refused[TopicPartition(name, 0)]
    assert isinstance(refusal, MirrorTruncatedError)
    assert refusal.truncated_at == 100


def test_a_merger_does_not_skip_what_follows_the_cut(own, topic):
    client, name, began_ms = client_of(own), topic("clicks"), int(time.time() * 1000) - 60_000
    sources = dict.fromkeys((f"here.{name}", f"there.{name}"), ClockSource.WALL)
    for each in (*sources, name, f"{name}.late"):
        make_topic(client, each, 1)
    group = f"headrace.merger.{name}"
    plan = MergePlan(name, group, client, sources, name, f"{name}.late", 0, 3_600.0)
    log = CutLog(own, plan.topics[0])
    test_merger.write(plan, 0, range(began_ms, began_ms + 100))
    log.remember()
    test_merger.write(plan, 0, range(began_ms + 100, began_ms + 150))
    with test_merger.Running(plan) as running:
        running.until(lambda status: status.records == 150)

    log.cut()
    test_merger.write(plan, 0, range(began_ms + 1_000, began_ms + 1_080))

    with test_merger.Running(plan) as running:
        running.until(lambda status: status.refused)
        [refusal] = running.instance.progress.refused.values()
    assert isinstance(refusal, MergerLossError)
    assert (refusal.next_offset, refusal.accepted_offset) == (150, 100)
    assert "its log was truncated at offset 100" in str(refusal)


@pytest.fixture
def dispatched(own, broker, topic, session, tmp_path):
    """A dispatcher to site waw that has sent 150 records; the log goes back to 100 of them."""
    addresses = {"central": own.bootstrap_servers, "waw": broker.bootstrap_servers}
    name = topic("clicks")
    targets = {"waw": f"{name}.events"}
    project = DispatcherInProcess(tmp_path, addresses, name, partitions=1, targets=targets)
    project.make_topics()
    project.write(range(100))
    return project, CutLog(own, name)


def test_a_dispatcher_does_not_skip_what_follows_the_cut(dispatched):
    project, log = dispatched
    log.remember()
    project.write(range(100, 150))
    project.once()

    log.cut()
    project.write(range(1_000, 1_080))

    refused = " ".join(project.once(exit_code=3).split())
    assert "its log was truncated at offset 100" in refused
    project.command("dispatcher", "accept", "dispatch", "waw", f"{project.name}/0")
    project.once()
    assert project.numbers("waw") == [*range(150), *range(1_000, 1_080)]


def test_a_dispatcher_does_not_take_new_records_for_those_that_it_sent_before_the_cut(dispatched):
    """As of an instance that was killed before it committed its position."""
    project, log = dispatched
    project.once()
    log.remember()
    project.write(range(100, 150))
    sender = connected_producer(project.configs["waw"])
    for n in range(100, 150):
        origin = ("headrace-origin", f"central/{project.name}/0/{n}".encode())
        sender.produce(project.target, b'{"n": %d}' % n, None, 0, headers=[origin])
    assert sender.flush(FLUSH_SECONDS) == 0

    log.cut()
    project.write(range(1_000, 1_080))

    project.once()
    assert project.numbers("waw") == [*range(150), *range(1_000, 1_080)]


@pytest.mark.parametrize("is_committed", [True, False])
def test_query_emit_does_not_skip_what_follows_the_cut(
    own, topic, session, tmp_path, caplog, is_committed
):
    project = EmitProject(tmp_path, own, topic, partitions=1)
    project.register("all", ALL)
    log = CutLog(own, project.topic)
    with project.running():
        project.until_begun()
        places = project.send(100)
        project.until("all", places)
        log.remember()
        before = committed_positions(project.matched, project.sources)
        places += project.send(50)
        project.until("all", places)
    if not is_committed:  # as by a process that was killed
        commit_positions(project.matched, before)

    log.cut()
    project.sent = 100
    places += project.send(80)

    with project.running():
        project.until("all", places)
    assert "another leader has a log of its own from offset 100 on" in caplog.text


def test_dead_letters_behind_the_cut_are_replayed(own, topic):
    client, name = client_of(own), topic("clicks")
    for each in (name, f"{name}.dead"):
        make_topic(client, each, 1)
    origin, log = TopicPartition(name, 0), CutLog(own, f"{name}.dead")

    def write(offsets):
        letters = [DeadLetter(origin, n, "not-json", "bad", b"k", b"%d" % n) for n in offsets]
        # A producer that has written before the cut has other numbers than the log.
        sender = connected_producer(client)
        for record in dead_letter_records(client, letters, "p", "1"):
            sender.produce(record.topic, record.value, record.key, 0, headers=list(record.headers))
        assert sender.flush(FLUSH_SECONDS) == 0

    def replayed():
        result = replay(client, name, DeadLetterFilter())
        return result.sent, result.already

    write(range(10))
    log.remember()
    write(range(10, 20))
    assert (replayed(), replayed()) == ((20, 0), (0, 20))

    log.cut()
    write(range(100, 130))

    assert (replayed(), replayed()) == ((30, 10), (0, 40))


def client_of(running):
    return client_config(KafkaSettings(), running.bootstrap_servers)
