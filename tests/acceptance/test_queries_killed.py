"""Instances of standing queries are killed, frozen and replaced; results are those of no fault.

Meanwhile the pipeline that matches loses its checkpoint and gets another plan.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import confluent_kafka
import pytest
from tests.integration.aggregator_instance import View, arguments
from tests.integration.flow import Flow
from tests.waiting import DRILL_LIMIT_SECONDS, LIMIT_SECONDS, wait_for, wait_for_drill

from headrace import BatchLimits, Pipeline, StandingQueries, Topic
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import consumer
from headrace.kafka.read.open_transactions import open_transactions
from headrace.queries.match.sink import MatchQueries
from headrace.queries.records.result import ResultKind, decode_result
from headrace.queries.registry.record import RegisteredQuery, encode_query
from headrace.queries.registry.topic import write_registry
from headrace.queries.topics import ensure_query_topics

USERS = 500
COUNTRIES = ("PL", "DE", "FR")
WINDOW = timedelta(seconds=10)
# A minute of views is sent in a second, to one partition before the other, and the topic is quiet
# in between, where its time goes on: none of that makes a view late.
LATENESS = timedelta(minutes=5)
KILLED, FROZEN = signal.SIGKILL, signal.SIGSTOP


class Views:
    """Views whose times go on with each second of a clock of their own, a little disordered."""

    def __init__(self, flow, topic, random):
        self._flow, self._topic, self._random = flow, topic, random
        self._at = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=2)
        self.count = 0
        self.expected = defaultdict(lambda: [0, 0, 0])

    def send(self, count, seconds):
        """Sends views of so many seconds."""
        values = []
        for number in range(count):
            at = self._at + number / count * timedelta(seconds=seconds)
            at -= timedelta(milliseconds=self._random.randrange(2_000))
            user, country = self._random.randrange(USERS), self._random.choice(COUNTRIES)
            n = self._random.randrange(1_000)
            values.append(self._value(at, user, country, n))
            begin = at.timestamp() // WINDOW.total_seconds() * WINDOW.total_seconds()
            sums = self.expected[user, begin, country]
            sums[0] += 1
            sums[1] += n
            sums[2] = max(sums[2], n)
        self._at += timedelta(seconds=seconds)
        self._flow.send(values, topic=self._topic.name)

    def end(self):
        """Sends views of nobody that end all windows: as many as move the time of any batch."""
        at = self._at + 2 * LATENESS
        for partition in range(self._topic.partitions):
            values = [self._value(at, -1, "PL", 0)] * 1_000
            self._flow.send(values, topic=self._topic.name, partition=partition)

    def _value(self, at, user, country, n):
        self.count += 1
        event = {"id": f"v{self.count}", "at": at.isoformat(), "user": user}
        return json.dumps(event | {"country": country, "n": n}).encode()


def register(flow, declared, topic, users):
    now = datetime.now(UTC)
    for user in range(users):
        text = (
            f'SELECT count(*), sum(n), max(n) FROM "{topic.name}" WHERE user = {user} '
            f"FACET country WINDOW 10 seconds ALLOWED LATENESS {LATENESS.seconds} seconds"
        )
        query = RegisteredQuery(f"q{user}", text, topic.name, 1, now, now, None)
        write_registry(flow.client, declared.queries_topic, *encode_query(query))


class LaterView(View):
    """A view of the next version of the project."""

    city: str | None


def views_topic(name, event=View):
    return Topic(name, event=event, event_time="at", partitions=2)


class Matching:
    """The pipeline that matches, on a thread."""

    def __init__(self, flow, declared, topic):
        self._flow, self._sink = flow, MatchQueries(declared)
        self._start(self._pipeline(topic, timedelta(milliseconds=200)))

    def upgrade(self, topic):
        """Goes on with another plan, without its checkpoint."""
        assert self._matched.wait(DRILL_LIMIT_SECONDS)
        self.stop()
        pipeline = self._pipeline(topic, timedelta(milliseconds=500))
        shutil.rmtree(self._flow.checkpoint(pipeline.name).parent)
        self._flow.reset(pipeline, "table")
        self._start(pipeline)

    def stop(self):
        self._stop.set()
        self._thread.join()

    def _observe(self, progress):
        if progress["match"].rows_in:
            self._matched.set()

    def _pipeline(self, topic, max_wait):
        return Pipeline("match", topic, self._sink, limits=BatchLimits(max_wait=max_wait))

    def _start(self, pipeline):
        self._stop, self._matched = threading.Event(), threading.Event()
        run = {"once": False, "stop": self._stop, "observe": self._observe}
        self._thread = threading.Thread(target=self._flow.run, args=[pipeline], kwargs=run)
        self._thread.start()


class Instances:
    """Three instances, of which two have partitions."""

    def __init__(self, flow, declared, topic, random):
        self._arguments = [sys.executable, *arguments(flow.client, declared, topic.name)]
        self._random = random
        self.running = [self._start() for _ in range(3)]
        self._frozen = []

    def fail(self, fault):
        """Kills an instance, or freezes it for longer than its lease; another one begins."""
        victim = self.running.pop(self._random.randrange(len(self.running)))
        victim.send_signal(fault)
        self.running.append(self._start())
        if fault is KILLED:
            victim.wait()
        else:
            self._frozen.append(victim)
            time.sleep(self._random.uniform(6, 9))
            victim.send_signal(signal.SIGCONT)

    def replace_oldest(self):
        """A step of a rolling restart."""
        leaving = self.running.pop(0)
        wait_for(lambda: handles(leaving, signal.SIGTERM))  # it is about to begin
        leaving.terminate()
        assert leaving.wait(LIMIT_SECONDS) == 0
        self.running.append(self._start())

    def describe(self):
        """Has all of them write how they are, and the stacks of their threads."""
        for process in (*self.running, *self._frozen):
            process.send_signal(signal.SIGUSR1)
        time.sleep(2.0)

    def close(self):
        for process in (*self.running, *self._frozen):
            process.kill()
            process.wait()

    def _start(self):
        return subprocess.Popen(self._arguments)


def handles(process, number):
    """Whether a process has a handler of a signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    [handled] = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return bool(int(handled, 16) >> (number - 1) & 1)


def final_results(flow, declared, expected):
    """All results, by partition in order, once there are as many final ones as expected."""
    reader = consumer(flow.client, tuning={"enable.partition.eof": "false"})
    partitions = range(declared.partitions)
    reader.assign(
        [confluent_kafka.TopicPartition(declared.results_topic, p, 0) for p in partitions]
    )
    results = []

    def are_there():
        for message in reader.consume(10_000, 1.0):
            assert message.error() is None, message.error()
            results.append(decode_result(message.value()))
        return sum(each.kind is ResultKind.FINAL for each in results) >= len(expected)

    wait_for_drill(are_there, lambda: missing(expected, results))
    results += [decode_result(message.value()) for message in reader.consume(10_000, 5.0)]
    reader.close()
    return results


def transactions_open(flow, declared):
    """The first offset that readers of committed records do not get, of each such partition."""
    topics = describe(flow.client, declared.topics).values()
    places = [place for topic in topics for place in topic.all_partitions]
    return {str(place): at for place, at in open_transactions(flow.client, places).items()}


def missing(expected, results):
    return f"missing: {sorted(expected.keys() - set(map(window_of, results)))}"


def window_of(result):
    """User, begin and country."""
    begin = datetime.fromisoformat(result.begin).timestamp()
    return int(result.query.removeprefix("q")), begin, result.facets["country"]


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path)


def check(flow, drill_run, faults, *, events, queries, replaces):
    """The results of queries over events are those of no fault; returns how many.

    ``replaces``: another version of the pipeline and other instances take over meanwhile.
    """
    declared = StandingQueries(f"q-{uuid.uuid4().hex[:8]}", 4, 2, max_ttl=None)
    topic = views_topic(f"views-{uuid.uuid4().hex[:8]}")
    flow.create(topic.name, topic.partitions)
    flow.create(topic.dead_letters, 1)
    ensure_query_topics(flow.client, declared)
    register(flow, declared, topic, queries)
    views = Views(flow, topic, drill_run.random)
    instances = Instances(flow, declared, topic, drill_run.random)
    step = events // (len(faults) + 1)
    matching = Matching(flow, declared, topic)
    try:
        for number, fault in enumerate(faults):
            if replaces and number == len(faults) // 2:
                matching.upgrade(views_topic(topic.name, LaterView))
            views.send(step, 60)
            time.sleep(drill_run.random.uniform(1, 6))
            instances.fail(fault)
        for _ in instances.running.copy():
            views.send(step // 3, 20)
            if replaces:
                instances.replace_oldest()
        views.end()
        expected = {key: sums for key, sums in views.expected.items() if key[0] < queries}
        results = final_results(flow, declared, expected)
    except AssertionError as error:
        instances.describe()
        error.add_note(f"open transactions: {transactions_open(flow, declared)}")
        raise
    finally:
        instances.close()
        matching.stop()
    answers = defaultdict(list)
    begins = defaultdict(list)
    for result in results:
        answers[window_of(result)].append(list(result.values.values()))
        begins[result.query].append(result.begin)
    assert {key: values[0] for key, values in answers.items()} == expected
    assert {len(values) for values in answers.values()} == {1}
    assert all(times == sorted(times) for times in begins.values())
    drill_run.report(events=views.count, results=len(results))


@pytest.mark.drill(always=True)
def test_an_instance_that_is_killed_changes_no_result(flow, drill_run):
    check(flow, drill_run, [KILLED], events=4_000, queries=10, replaces=False)


@pytest.mark.drill
def test_faults_of_instances_change_no_result(flow, drill_run):
    kills = drill_run.size(short=1, long=10)
    freezes = drill_run.size(short=1, long=4)
    faults = kills * [KILLED] + freezes * [FROZEN]
    drill_run.random.shuffle(faults)
    events = drill_run.size(short=30_000, long=500_000)
    queries = drill_run.size(short=40, long=USERS)
    check(flow, drill_run, faults, events=events, queries=queries, replaces=True)
    drill_run.report(kills=kills, freezes=freezes)
