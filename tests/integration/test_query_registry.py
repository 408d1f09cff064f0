"""The registry of standing queries on a real broker: registered, read, and its topic's settings."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import confluent_kafka
import pytest
from click.testing import CliRunner
from tests.registered import (
    cancel_query,
    register_query,
    registered_queries,
    registered_query,
    update_query,
)
from tests.unit.queries.registry.flow import FLOW, write_project
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace.cli import main
from headrace.errors import QueryMissingError, TopicChangeError
from headrace.kafka.admin.topics import delete_topic, ensure_topics, topic_states
from headrace.kafka.client.admin_requests import admin, describe
from headrace.kafka.client.clients import client_config, connected_producer
from headrace.model import Topic
from headrace.project.check import load_project
from headrace.queries.declaration import StandingQueries
from headrace.queries.language import parse_query
from headrace.queries.registry import writer
from headrace.queries.registry.followed import FollowedRegistry
from headrace.queries.registry.record import RegisteredQuery, encode_query
from headrace.queries.registry.registrations import QueryRegistry
from headrace.queries.registry.topic import (
    ensure_registry_topic,
    query_records,
    write_registry,
)
from headrace.settings import load_settings
from headrace.settings.model import KafkaSettings

COUNT = "SELECT count(*)\nFROM clicks\nWINDOW 1 minute"
DAY_MS = str(86_400_000)


@pytest.fixture
def config(broker):
    return client_config(KafkaSettings(), broker.bootstrap_servers)


@pytest.fixture
def name(topic):
    return topic("ads")


@pytest.fixture
def flow(name):
    return FLOW.replace('StandingQueries("ads")', f'StandingQueries("{name}")')


@pytest.fixture
def load(tmp_path, monkeypatch, broker, flow):
    """``load(old, new)``: a project of a module, with a part of its text replaced."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def project(old="", new=""):
        folder = write_project(
            tmp_path, flow.replace(old, new) if old else flow, bootstrap=broker.bootstrap_servers
        )
        return load_project(load_settings(folder, {}))

    return project


def followed(name):
    return FollowedRegistry(f"{name}.queries", parse_query)


def test_a_registry_without_a_topic_is_empty(load, name, config):
    project = load()
    assert registered_queries(project) == []
    with pytest.raises(QueryMissingError):
        update_query(project, "a")
    with pytest.raises(QueryMissingError):
        cancel_query(project, "a")
    assert describe(config, [f"{name}.queries"]) == {}


def test_queries_are_registered_updated_and_cancelled(load, name, config):
    project = load()
    first = register_query(project, COUNT, query_id="a")
    second = register_query(project, COUNT)
    again = register_query(project, COUNT, query_id="a")
    updated = update_query(project, "a", f"{COUNT} LIMIT 7")
    assert [query.offset for query in (first, second, again, updated)] == [0, 1, 2, 3]
    assert [query.revision for query in (first, again, updated)] == [1, 1, 2]
    assert [entry.query for entry in registered_queries(project)] == [updated, second]
    [cancelled] = cancel_query(project, "a")
    assert cancelled.offset == 4
    assert [entry.query for entry in registered_queries(project)] == [second]
    assert followed(name).table(config).next_offset == 5


@pytest.fixture
def write_between(monkeypatch):
    """``write_between(*acts)``: one act before each of the next records is written."""
    write = writer.write_registry

    def before_writes(*acts):
        coming = list(acts)

        def write_after_another(*record):
            if coming:
                with monkeypatch.context() as unchanged:
                    unchanged.setattr(writer, "write_registry", write)
                    coming.pop(0)()
            return write(*record)

        monkeypatch.setattr(writer, "write_registry", write_after_another)

    return before_writes


def revisions_and_texts(name, config, query_id):
    """Revision and text of each record of a query, in order."""
    end = followed(name).table(config).next_offset
    return [
        (query.revision, query.text)
        for query in query_records(config, f"{name}.queries", query_id, range(end))
        if query is not None
    ]


def test_two_updates_at_once_get_different_revisions(load, name, config, write_between):
    project = load()
    ours, theirs = QueryRegistry(project), QueryRegistry(project)
    ours.register(COUNT, "a")
    write_between(
        lambda: theirs.update("a", f"{COUNT} LIMIT 7"),
        lambda: register_query(project, COUNT, query_id="b"),
    )
    updated = ours.update("a", f"{COUNT} LIMIT 8")
    assert updated.revision == 3
    assert registered_query(project, "a").query == updated
    assert revisions_and_texts(name, config, "a") == [
        (1, COUNT),
        (2, COUNT.replace("WINDOW", "LIMIT 7\nWINDOW")),
        (2, updated.text),
        (3, updated.text),
    ]


def test_a_second_writer_between_two_records_is_left_alone(load, write_between):
    """It has seen the first record, and changed it."""
    project = load()
    ours, theirs = QueryRegistry(project), QueryRegistry(project)
    ours.register(COUNT, "a")

    def update_theirs(limit):
        return lambda: theirs.update("a", f"{COUNT} LIMIT {limit}")

    write_between(update_theirs(7), update_theirs(9))
    updated = ours.update("a", f"{COUNT} LIMIT 8")
    assert (updated.revision, updated.offset) == (3, 4)
    kept = registered_query(project, "a").query
    assert (kept.text, kept.revision) == (COUNT.replace("WINDOW", "LIMIT 9\nWINDOW"), 3)


def test_two_first_registrations_at_once_get_different_revisions(load, name, config, write_between):
    project = load()
    ours, theirs = QueryRegistry(project), QueryRegistry(project)
    write_between(lambda: theirs.register(f"{COUNT} LIMIT 7", "a"))
    assert ours.register(COUNT, "a").revision == 2
    assert [each for each, _ in revisions_and_texts(name, config, "a")] == [1, 1, 2]


def test_a_renewal_that_meets_an_update_keeps_its_text_and_revision(load, write_between):
    project = load()
    ours, theirs = QueryRegistry(project), QueryRegistry(project)
    ours.register(COUNT, "a")
    write_between(lambda: theirs.update("a", f"{COUNT} LIMIT 7"))
    renewed = ours.update("a")
    assert (renewed.text, renewed.revision) == (COUNT.replace("WINDOW", "LIMIT 7\nWINDOW"), 2)
    assert registered_query(project, "a").query == renewed


def test_an_update_that_meets_a_cancellation_leaves_the_query_cancelled(load, write_between):
    project = load()
    ours, theirs = QueryRegistry(project), QueryRegistry(project)
    ours.register(COUNT, "a")
    write_between(lambda: theirs.cancel("a"))
    with pytest.raises(QueryMissingError, match="it was cancelled"):
        ours.update("a")
    assert registered_queries(project) == []


def test_two_updates_to_one_text_have_one_revision(load, name, config, write_between):
    project = load()
    ours, theirs = QueryRegistry(project), QueryRegistry(project)
    ours.register(COUNT, "a")
    updates = []
    write_between(lambda: updates.append(theirs.update("a", f"{COUNT} LIMIT 7")))
    updates.append(ours.update("a", f"{COUNT} LIMIT 7"))
    # The last record has the time of the first update.
    assert [each for each, _ in revisions_and_texts(name, config, "a")] == [1, 2, 2, 2]
    assert updates[0].text_changed_at == updates[1].text_changed_at


def test_a_query_expires_by_the_clock(load):
    project = load()
    query = register_query(project, COUNT, query_id="a", ttl=timedelta(seconds=1))
    wait_for(lambda: datetime.now(UTC) >= query.expires_at)
    [entry] = registered_queries(project)
    assert (entry.state.value, entry.query) == ("expired", query)
    assert register_query(project, f"{COUNT} LIMIT 7", query_id="a").revision == 1
    assert registered_query(project, "a").state.value == "live"


@pytest.mark.parametrize(
    ("max_ttl", "settings"),
    [
        (
            timedelta(hours=12),
            {"cleanup.policy": "delete", "retention.ms": DAY_MS, "segment.ms": DAY_MS},
        ),
        (
            None,
            {
                "cleanup.policy": "compact",
                "segment.ms": "3600000",
                "min.compaction.lag.ms": DAY_MS,
            },
        ),
    ],
)
def test_the_topic_has_the_settings_of_its_max_ttl(config, name, max_ttl, settings):
    queries = StandingQueries(name, max_ttl=max_ttl)
    for _ in range(2):
        ensure_registry_topic(config, queries)
    state = topic_states(config, [queries.queries_topic])[queries.queries_topic]
    assert {setting: state.config[setting] for setting in state.overrides} == settings
    assert (state.live.partitions, state.live.replication) == (1, 1)


def test_a_topic_of_another_max_ttl_is_an_error_that_says_what_to_do(load):
    register_query(load(), COUNT, query_id="a")
    shorter = load("ads = StandingQueries(", "ads = StandingQueries(max_ttl=timedelta(1), name=")
    expected = f"--add-config cleanup.policy=delete,retention.ms={2 * 86_400_000}"
    with pytest.raises(TopicChangeError, match=expected):
        register_query(shorter, COUNT, query_id="b")
    with pytest.raises(TopicChangeError, match=r"it has cleanup.policy=delete"):
        update_query(shorter, "a")
    assert [entry.id for entry in registered_queries(shorter)] == ["a"]


def test_a_topic_with_several_partitions_is_no_registry(config, name):
    ensure_topics(config, [Topic(f"{name}.queries", partitions=2)])
    with pytest.raises(TopicChangeError, match="it has 2 partitions"):
        ensure_registry_topic(config, StandingQueries(name))


def test_faulty_records_harm_no_query(load, name, config):
    project = load()
    query = register_query(project, COUNT, query_id="good")
    stale = replace(query, id="stale", text="SELECT count(*) FROM nowhere", topic="nowhere")
    for key, value in ((b"junk", b"{"), (b"\xff", b"[]"), encode_query(stale)):
        write_registry(config, f"{name}.queries", key, value)
    sender = connected_producer(config)
    sender.produce(f"{name}.queries", b"without a key")
    assert sender.flush(FLUSH_SECONDS) == 0
    states = {entry.id: entry.state.value for entry in registered_queries(project)}
    assert states == {
        "good": "live",
        "stale": "faulty",
        "junk": "faulty",
        "\\xff": "faulty",
        "": "faulty",
    }
    entry = registered_query(project, "stale")
    assert (entry.state.value, "no topic 'nowhere'" in entry.reason) == ("faulty", True)
    cancel_query(project, "junk", "stale")
    assert register_query(project, COUNT, query_id="good").offset == 7


def test_ten_thousand_queries_are_listed(load, name, config):
    project = load()
    now = datetime.now(UTC).replace(microsecond=0)
    ensure_registry_topic(config, project.declared(StandingQueries)[name])
    sender = connected_producer(config)
    for number in range(10_000):
        at = now + timedelta(milliseconds=number)
        text = f"SELECT count(*)\nFROM clicks\nWHERE price = {number}\nWINDOW 1 minute"
        query = RegisteredQuery(
            f"q{number:05}", text, "clicks", 1, at, at, now + timedelta(hours=1)
        )
        key, value = encode_query(query)
        sender.produce(f"{name}.queries", value, key)
    assert sender.flush(FLUSH_SECONDS) == 0
    entries = registered_queries(project)
    assert [entry.id for entry in entries] == [f"q{number:05}" for number in range(10_000)]
    assert {entry.state.value for entry in entries} == {"live"}


def test_a_followed_registry_has_what_one_that_begins_later_has(load, name, config):
    project, early = load(), followed(name)
    assert early.table(config).registered == {}
    for query_id in "abc":
        register_query(project, COUNT, query_id=query_id)
    assert list(early.table(config).registered) == ["a", "b", "c"]
    update_query(project, "b")
    cancel_query(project, "c")
    late = followed(name)
    assert early.table(config).registered == late.table(config).registered
    assert {query.offset for query in early.table(config).registered.values()} == {0, 3}
    assert early.table(config).is_cancelled("c")


def test_a_followed_registry_forgets_what_kafka_has_deleted(load, name, config):
    project, registry = load(), followed(name)
    for query_id in "ab":
        register_query(project, COUNT, query_id=query_id)
    assert len(registry.table(config).registered) == 2
    place = confluent_kafka.TopicPartition(f"{name}.queries", 0, 1)
    [deleted] = admin(config).delete_records([place]).values()
    deleted.result(LIMIT_SECONDS)
    assert list(registry.table(config).registered) == ["b"]


def test_a_topic_that_was_created_again_is_another_registry(load, name, config):
    project, registry = load(), followed(name)
    for query_id in "ab":
        register_query(project, COUNT, query_id=query_id)
    assert len(registry.table(config).registered) == 2
    delete_topic(config, f"{name}.queries")
    assert registry.table(config).registered == {}
    for query_id in "cde":
        register_query(project, COUNT, query_id=query_id)
    assert list(registry.table(config).registered) == ["c", "d", "e"]


def test_commands_register_and_list(load, name, tmp_path):
    load()

    def query(*arguments):
        words = ["query", *arguments, "--project", str(tmp_path), "--json"]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    assert query("register", COUNT, "--id", "a", "--in", name)["registry"] == f"{name}.queries"
    assert [each["id"] for each in query("list")["queries"]] == ["a"]
    assert query("update", "a")["revision"] == 1
    assert query("cancel", "a")["cancelled"] == [{"id": "a", "offset": 2}]
    assert query("list") == {"queries": []}
