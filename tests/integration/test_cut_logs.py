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
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace import StandingQueries
from headrace.errors import LinkLossError, QueryTopicTruncatedError, WorkerTruncatedError
from headrace.kafka.client.clients import client_config, connected_producer
from headrace.kafka.dead_letters.replay import DeadLetterFilter, replay
from headrace.kafka.dead_letters.writer import dead_letter_records
from headrace.kafka.write.transactions import TransactionalProducer
from headrace.links.merger.plan import ClockSource, MergerPlan
from headrace.links.mirror.plan import MirrorPlan
from headrace.model import DeadLetter, TopicPartition
from headrace.queries.emit.positions import commit_positions, committed_positions
from headrace.queries.records.matched import Tick
from headrace.queries.topics import ensure_query_topics
from headrace.queries.windows.instance.instance import AggregatorInstance
from headrace.settings import KafkaSettings, Settings
from headrace.workers.reset import reset


@pytest.fixture(scope="module")
def own(start_cluster):
    return start_cluster()


class CutWorker:
    """A worker that has taken 150 records, or also one of a transaction, and its marker."""

    def __init__(self, own, *, is_transactional):
        self.bench = Bench(own.bootstrap_servers)
        self.seen, task = recorder()
        self.worker, self.log = self.bench.worker(task), CutLog(own, self.bench.topic.name)
        self.bench.send(100)
        self.log.remember()
        self.bench.send(50, first=100)
        end = 150
        if is_transactional:
            self._send_in_transaction()
            end += 2
        self.work(end)

    def _send_in_transaction(self):
        sender = confluent_kafka.Producer(
            {**self.bench.client, "transactional.id": self.bench.topic.name}
        )
        sender.init_transactions(LIMIT_SECONDS)
        sender.begin_transaction()
        sender.produce(self.bench.topic.name, b"150", partition=0)
        sender.commit_transaction(LIMIT_SECONDS)

    def work(self, end):
        """Runs an instance until it has committed an offset."""

        async def run():
            async with running(self.bench.instance(self.worker)):
                await until_brokers_say(lambda: self.bench.committed(self.worker) == {0: end})

        drill(run())


def test_a_worker_does_not_skip_what_follows_the_cut(own, tmp_path):
    plain, transactional = (
        CutWorker(own, is_transactional=is_transactional) for is_transactional in (False, True)
    )
    plain.log.cut(transactional.log)
    kafka = KafkaSettings(bootstrap_servers=own.bootstrap_servers)
    settings = Settings(tmp_path, "cut", (), str(tmp_path), kafka=kafka)
    for case in (plain, transactional):
        bench, topic = case.bench, case.bench.topic.name
        bench.send(80, first=1_000)
        with pytest.raises(WorkerTruncatedError) as refused:
            drill(bench.instance(case.worker).run())
        assert (refused.value.topic, refused.value.cut_offset) == (topic, 100)
        begins = reset(settings, case.worker, to="committed", dry_run=False).begins
        assert begins == {f"{topic}/0": 100}
        case.seen.clear()
        case.work(180)
        assert [*case.seen.values()] == [list(range(1_000, 1_080))]


def test_a_worker_that_runs_notices_a_cut(own):
    bench = Bench(own.bootstrap_servers)
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
    link = MirrorPlan(name, f"headrace.mirror.{name}", "waw", "central", source, target, copies)
    log = CutLog(own, name)
    test_mirror.write(source, name, range(100))
    log.remember()
    test_mirror.write(source, name, range(100, 150))
    with test_mirror.Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 150)

    log.cut()
    test_mirror.write(source, name, range(1_000, 1_080))

    with test_mirror.Running(link) as running:
        running.until(lambda progress: progress.refused)
        refusal = running.refused[TopicPartition(name, 0)]
    assert refusal.code == "MIRROR_TRUNCATED"
    assert refusal.accepted_offset == 100


def test_markers_that_another_leader_wrote_are_no_cut(own, broker, topic):
    source, target = (client_of(running) for running in (own, broker))
    name = topic("clicks")
    copies = {name: f"waw.{name}"}
    test_mirror.make(source, name)
    test_mirror.make(target, copies[name])
    link = MirrorPlan(name, f"headrace.mirror.{name}", "waw", "central", source, target, copies)
    log = CutLog(own, name)
    test_mirror.write(source, name, range(10))
    log.remember()
    log.cut()  # of nothing
    sender = TransactionalProducer(source, f"{name}-aborted")
    sender._producer.begin_transaction()
    sender._producer.produce(name, b"999", partition=0)
    sender._producer.flush(FLUSH_SECONDS)
    sender.close()
    with test_mirror.Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 10)
        wait_for(lambda: test_mirror.committed_offset(target, link) == 12)
    test_mirror.write(source, name, range(10, 20))
    with test_mirror.Running(link) as running:
        running.until(lambda progress: progress.moved["records"] == 10)
        assert running.refused == {}
    assert test_mirror.numbers(target, link) == list(range(20))


def test_a_merger_does_not_skip_what_follows_the_cut(own, topic):
    client, name, began_ms = client_of(own), topic("clicks"), int(time.time() * 1000) - 60_000
    sources = dict.fromkeys((f"here.{name}", f"there.{name}"), ClockSource.WALL)
    for each in (*sources, name, f"{name}.late"):
        make_topic(client, each, 1)
    group = f"headrace.merger.{name}"
    plan = MergerPlan(name, group, client, sources, name, f"{name}.late", 0, 3_600.0)
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
    assert isinstance(refusal, LinkLossError)
    assert (refusal.next_offset, refusal.accepted_offset) == (150, 100)
    assert "its log was truncated at offset 100" in str(refusal)


@pytest.fixture
def dispatched(own, broker, topic, session, tmp_path):
    """A dispatcher to site waw, with 100 records to send; the log goes back to them."""
    addresses = {"central": own.bootstrap_servers, "waw": broker.bootstrap_servers}

    def made():
        name = topic("clicks")
        targets = {"waw": f"{name}.events"}
        folder = tmp_path / name
        project = DispatcherInProcess(folder, addresses, name, partitions=1, targets=targets)
        project.make_topics()
        project.write(range(100))
        return project, CutLog(own, name)

    return made


def test_a_dispatcher_sends_what_follows_the_cut_and_nothing_again(dispatched):
    """Also where it was killed before it committed the position of what it sent."""
    project, log = dispatched()
    log.remember()
    project.write(range(100, 150))
    project.once()
    killed, killed_log = dispatched()
    killed.once()
    killed_log.remember()
    killed.write(range(100, 150))
    sender = connected_producer(killed.configs["waw"])
    for n in range(100, 150):
        origin = ("headrace-origin", f"central/{killed.name}/0/{n}".encode())
        sender.produce(killed.target, b'{"n": %d}' % n, None, 0, headers=[origin])
    assert sender.flush(FLUSH_SECONDS) == 0

    log.cut(killed_log)
    project.write(range(1_000, 1_080))
    killed.write(range(1_000, 1_080))

    refused = " ".join(project.once(exit_code=3).split())
    assert "its log was truncated at offset 100" in refused
    project.command("dispatcher", "accept", "dispatch", "waw", f"{project.name}/0")
    for sending in (project, killed):
        sending.once()
        assert sending.numbers("waw") == [*range(150), *range(1_000, 1_080)]


class CutEmit:
    """A process of `query emit` that has sent 150 matches, or was killed before it committed."""

    def __init__(self, folder, own, topic, *, is_committed):
        folder.mkdir()
        self.project = project = EmitProject(folder, own, topic, partitions=1)
        project.register("all", ALL)
        self.log = CutLog(own, project.topic)
        with project.running():
            project.until_begun()
            self.places = project.send(100)
            project.until("all", self.places)
            self.log.remember()
            before = committed_positions(project.matched, project.sources)
            self.places += project.send(50)
            project.until("all", self.places)
        if not is_committed:
            commit_positions(project.matched, before)


def test_query_emit_does_not_skip_what_follows_the_cut(own, topic, session, tmp_path, caplog):
    cases = [
        CutEmit(tmp_path / str(is_committed), own, topic, is_committed=is_committed)
        for is_committed in (True, False)
    ]
    cases[0].log.cut(cases[1].log)
    for case in cases:
        project = case.project
        project.sent = 100
        case.places += project.send(80)
        caplog.clear()
        with project.running():
            project.until("all", case.places)
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
