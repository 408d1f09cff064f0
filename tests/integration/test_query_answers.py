"""Results, explanations and instances of standing queries on a real broker, and a run of one."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import confluent_kafka
import msgspec
import pytest
from click.testing import CliRunner
from tests.kafka_topics import make_topic
from tests.registered import cancel_query, register_query, update_query
from tests.unit.queries.expected_results import result
from tests.unit.queries.registry.flow import FLOW, write_project
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace import Project, ResultKind, StandingQueries
from headrace.cli import main
from headrace.errors import QueryMissingError
from headrace.kafka.client.admin_requests import admin, describe
from headrace.kafka.client.clients import client_config, connected_producer
from headrace.project.check import load_project
from headrace.queries.records.matched import Tick
from headrace.queries.records.snapshots import AnswerPosition, SnapshotPosition
from headrace.queries.results.explanation import explain_query
from headrace.queries.results.results import ResultOptions, find_results
from headrace.queries.topics import ensure_query_topics
from headrace.queries.windows.instance.lease_holder import LeaseHolder
from headrace.queries.windows.instance.owners import query_instances, uncovered_partitions
from headrace.settings import KafkaSettings, load_settings

HEADRACE = Path(sys.executable).with_name("headrace")
BEGIN = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)
COUNT = "SELECT count(*) FROM {topic}"


class QueryProject:
    """A project on the shared broker, with standing queries and a topic of its own."""

    def __init__(self, folder, broker, names):
        self.config = client_config(KafkaSettings(), broker.bootstrap_servers)
        self.topic, self.name = names("clicks"), names("ads")
        flow = FLOW.replace('"clicks"', f'"{self.topic}"').replace('"ads"', f'"{self.name}"')
        flow = flow.replace(
            f'StandingQueries("{self.name}"', f'StandingQueries("{self.name}", 3, 2'
        )
        self.folder = write_project(folder, flow, bootstrap=broker.bootstrap_servers)
        self.loaded = load_project(load_settings(self.folder, {}))
        self.declared = self.loaded.declared(StandingQueries)[self.name]
        make_topic(self.config, self.topic, 2)
        ensure_query_topics(self.config, self.declared)

    def register(self, query_id, text=COUNT):
        quoted = text.format(topic=f'"{self.topic}"')
        return register_query(self.loaded, quoted, query_id=query_id)

    def send(self, topic, *values, partition=None, key=None):
        """Sends values as JSON, by key where there is no partition."""
        sender = connected_producer(self.config)
        where = {} if partition is None else {"partition": partition}
        for value in values:
            sender.produce(topic, msgspec.json.encode(value), key, **where)
        assert sender.flush(FLUSH_SECONDS) == 0

    def answer(self, *results):
        for each in results:
            self.send(self.declared.results_topic, each, key=each.query)

    def results(self, query_id, **options):
        return find_results(self.loaded, query_id, ResultOptions(**options)).results

    def command(self, *arguments, code=0):
        done = CliRunner().invoke(main, ["query", *arguments, "--project", str(self.folder)])
        assert done.exit_code == code, done.output
        return done.stdout


@pytest.fixture
def project(tmp_path, monkeypatch, broker, topic):
    monkeypatch.setattr(sys, "path", list(sys.path))
    return QueryProject(tmp_path, broker, topic)


def test_apply_creates_the_topics_of_standing_queries(tmp_path, monkeypatch, broker, topic):
    monkeypatch.setattr(sys, "path", list(sys.path))
    name, flow = topic("ads"), FLOW
    for declared, own in (("clicks", topic("clicks")), ("views", topic("views")), ("ads", name)):
        flow = flow.replace(f'"{declared}"', f'"{own}"')
    folder = write_project(tmp_path, flow, bootstrap=broker.bootstrap_servers)
    for _ in range(2):
        done = CliRunner().invoke(main, ["apply", "--project", str(folder)])
        assert done.exit_code == 0, done.output
    topics = StandingQueries(name).topics
    live = describe(client_config(KafkaSettings(), broker.bootstrap_servers), topics)
    single = {f"{name}.{part}" for part in ("queries", "positions", "leases")}
    assert {each: live[each].partitions for each in topics} == {
        each: 1 if each in single else 8 for each in topics
    }


def test_each_query_has_its_own_results_from_the_partition_of_its_id(project):
    ids = [f"query-{number}" for number in range(12)]
    for query_id in ids:
        project.register(query_id)
        project.answer(result(0, query=query_id), result(1, query=query_id))
    for query_id in ids:
        expected = [result(0, query=query_id), result(1, query=query_id)]
        assert list(project.results(query_id)) == expected


def test_results_are_followed_each_once(project):
    project.register("a")
    early, final = result(0, kind=ResultKind.EARLY), result(0, emission=2)
    project.answer(early, early)
    followed = project.results("a", follow=True)
    assert next(followed) == early
    project.answer(early, final, result(0, query="b"), final, result(1))
    assert list(itertools.islice(followed, 2)) == [final, result(1)]
    assert list(project.results("a")) == [final, result(1)]
    latest = project.results("a", follow=True, start="latest", limit=1)
    project.answer(result(2))
    assert list(latest) == [result(2)]


def test_results_outlive_their_query_and_unknown_ids_have_none(project):
    project.register("a")
    project.answer(result(0))
    cancel_query(project.loaded, "a")
    assert list(project.results("a")) == [result(0)]
    assert json.loads(project.command("results", "a", "--json"))["begin"] == result(0).begin
    done = CliRunner().invoke(main, ["query", "results", "a", "--project", str(project.folder)])
    assert done.stderr == "Query 'a' was cancelled: it has no further results.\n"
    with pytest.raises(QueryMissingError):
        project.results("unknown")


def test_programs_register_read_and_cancel(project):
    opened = Project.open(project.folder)
    query = opened.register_query(COUNT.format(topic=f'"{project.topic}"'), query_id="a")
    assert (query.id, query.revision) == ("a", 1)
    project.answer(result(0))
    assert list(opened.query_results("a")) == [result(0)]
    assert next(opened.query_results("a", follow=True)) == result(0)
    text = COUNT.format(topic=f'"{project.topic}"')
    updated = opened.update_query("a", f"{text} WINDOW 2 minutes", ttl=timedelta(minutes=5))
    assert (updated.revision, updated.expires_at - updated.updated_at) == (2, timedelta(minutes=5))
    assert [entry.query for entry in opened.registered_queries()] == [updated]
    assert opened.explain_query("a").entry.query == updated
    opened.cancel_query("a")
    with pytest.raises(QueryMissingError):
        opened.cancel_query("a")
    with pytest.raises(QueryMissingError):
        opened.update_query("a")


def test_an_explanation_reads_events_ticks_and_leases(project):
    text = "SELECT count(*) FROM {topic} WHERE price > 1 AND country = 'PL'"
    query = project.register("a", text)
    events = [
        {"at": (BEGIN + timedelta(seconds=n)).isoformat(), "country": country, "price": n}
        for n, country in enumerate(["PL", "PL", "DE", "PL", "DE", "DE"])
    ]
    project.send(project.topic, *events[:4], "no event", partition=0)
    project.send(project.topic, *events[4:], partition=1)
    explanation = explain_query(project.loaded, "a")
    assert explanation.pipelines[0].has_query is None
    reached = [(each.text, each.reached, each.met) for each in explanation.sample.operands]
    assert reached == [("country = 'PL'", 6, 3), ("price > 1", 3, 1)]
    assert (explanation.sample.matches, explanation.sample.rejected) == (1, 1)
    assert explanation.sample.newest_match == BEGIN + timedelta(seconds=3)
    assert uncovered_partitions(explanation.instances) == (0, 1, 2)

    def tick(planned_ms, registry_offset, positions):
        at = int((BEGIN + timedelta(seconds=5)).timestamp() * 1e6)
        return Tick(project.topic, "match-clicks", at, planned_ms, positions, registry_offset)

    matched = project.declared.matched_topic
    project.send(matched, tick(1_000, query.offset, {0: 4}), "no record", partition=0)
    assert explain_query(project.loaded, "a").pipelines[0].has_query is False
    planned_ms = int(BEGIN.timestamp() * 1000)
    project.send(matched, tick(planned_ms, query.offset + 1, {0: 4}), partition=0)
    project.send(matched, tick(planned_ms, query.offset + 1, {0: 5, 1: 1}), partition=0)
    [pipeline] = explain_query(project.loaded, "a").pipelines
    assert (pipeline.has_query, pipeline.planned_at, pipeline.lag) == (True, BEGIN, 1)
    assert (pipeline.rules, pipeline.has_registered_rules) == ("", None)
    assert pipeline.event_time == BEGIN + timedelta(seconds=5)


def test_an_explanation_adds_up_the_late_events_of_all_partitions(project):
    project.register("a")
    assert explain_query(project.loaded, "a").late_events is None
    snapshots = project.declared.snapshots_topic
    for partition, late in enumerate([{"a": 3, "b": 1}, {"b": 1}, {"a": 4}]):
        position = SnapshotPosition(offset=1, base=0, event_us={}, late=late)
        answered = AnswerPosition(first_offset=0, offset=0, passed_us={}, clocks={}, event_us={})
        project.send(snapshots, position, answered, partition=partition)
    assert explain_query(project.loaded, "a").late_events == 7
    assert "7 events came after their window had ended" in project.command("explain", "a")


def test_a_renewal_takes_no_query_from_a_pipeline(project):
    query = project.register("a")

    def has_query(registry_offset):
        tick = Tick(project.topic, "match-clicks", None, 1_000, {}, registry_offset)
        project.send(project.declared.matched_topic, tick, partition=0)
        return explain_query(project.loaded, "a").pipelines[0].has_query

    assert has_query(query.offset + 1) is True
    renewed = project.register("a")
    assert (renewed.offset > query.offset, renewed.revision) == (True, 1)
    assert has_query(query.offset + 1) is True
    assert has_query(query.offset) is False
    changed = update_query(project.loaded, "a", f'SELECT count(*) FROM "{project.topic}" LIMIT 7')
    assert has_query(renewed.offset + 1) is False
    assert has_query(changed.offset + 1) is True


def test_a_renewal_alone_says_nothing_of_batches_before_it(project):
    query = project.register("a")
    renewed = project.register("a")
    place = confluent_kafka.TopicPartition(project.declared.queries_topic, 0, renewed.offset)
    [deleted] = admin(project.config).delete_records([place]).values()
    deleted.result(LIMIT_SECONDS)
    tick = Tick(project.topic, "match-clicks", None, 1_000, {}, query.offset + 1)
    project.send(project.declared.matched_topic, tick, partition=0)
    explanation = explain_query(project.loaded, "a")
    assert explanation.pipelines[0].has_query is None
    assert explanation.unknown[-1].startswith("whether pipeline 'match-clicks' has the query")


def test_only_the_newest_events_are_looked_at(project):
    project.register("a")
    event = {"at": BEGIN.isoformat(), "country": "PL", "price": 1}
    for partition in range(2):
        project.send(project.topic, *[event] * 30, partition=partition)
    explanation = explain_query(project.loaded, "a", max_events=10)
    assert explanation.sample.events == 10
    assert explanation.unknown[0].startswith("what older events come to")


def test_an_event_with_a_time_that_pipelines_reject_is_no_match(project):
    project.register("a")
    event = {"at": BEGIN.isoformat(), "country": "PL", "price": 1}
    project.send(project.topic, event, event | {"at": "2999-01-01T00:00:00Z"}, partition=0)
    sample = explain_query(project.loaded, "a").sample
    assert (sample.events, sample.rejected, sample.newest_match) == (1, 1, BEGIN)


def test_instances_are_shown_by_their_leases(project):
    def covered():
        slots = query_instances(project.loaded)
        return [slot.is_covered for slot in slots]

    def is_shown():
        # On a busy machine a lease may end, and be taken again, at any time.
        shown = json.loads(project.command("instances", "--json", code=3))
        partitions = [slot["partitions"] for slot in shown["slots"] if slot["is_covered"]]
        own = holder.partitions
        return own is not None and partitions == [list(own)]

    assert covered() == [False, False]
    holder = LeaseHolder(project.config, project.declared)
    try:
        wait_for(is_shown)
    finally:
        holder.close()
    wait_for(lambda: covered() == [False, False])


def test_an_instance_runs_until_sigterm_with_progress_a_status_and_its_partitions(project):
    command = [HEADRACE, "query", "run", "--json", "--project", str(project.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        killer = threading.Timer(LIMIT_SECONDS, process.kill)
        killer.daemon = True
        killer.start()
        lines = map(json.loads, process.stdout)
        status = next(status for status in lines if status["owned"])
        assert (status["queries"], status["state"]) == (project.name, "running")
        wait_for(
            lambda: (
                [slot.partitions for slot in query_instances(project.loaded) if slot.is_covered]
                == [tuple(status["owned"])]
            )
        )
        process.send_signal(signal.SIGTERM)
        *_, last = lines
        assert process.wait() == 0
        killer.cancel()
    assert (last["state"], last["owned"]) == ("stopped", [])
    assert not any(slot.is_covered for slot in query_instances(project.loaded))
    status = CliRunner().invoke(main, ["status", "--json", "--project", str(project.folder)])
    [shown] = json.loads(status.stdout)["queries"]
    assert (shown["queries"], shown["state"]) == (project.name, "stopped")
