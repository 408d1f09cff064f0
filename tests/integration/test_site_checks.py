"""Whether topics of two sites fit: the rules, and the command on real clusters."""

from __future__ import annotations

from threading import Barrier

import pytest
from tests.in_process import answer
from tests.kafka_topics import make_topic
from tests.waiting import LIMIT_SECONDS

from headrace.errors import BrokerUnreachableError
from headrace.kafka.admin.topics import TopicState
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.client.brokers import Brokers
from headrace.kafka.client.clients import client_config
from headrace.links.kind import ReplicatedTopic, replicated_topics
from headrace.links.sites import checks as site_checks
from headrace.links.sites.checks import (
    link_faults,
    link_warnings,
    planned_topic,
)
from headrace.model import Topic
from headrace.project.check import load_project
from headrace.settings import load_settings
from headrace.settings.model import KafkaSettings

HOUR_MS = 3_600_000
MIRRORED = ReplicatedTopic("mirror waw", "waw", "clicks", "central", "waw.clicks", keeps_times=True)
SENT = ReplicatedTopic("dispatcher d", "central", "clicks", "waw", "events", keeps_times=False)
CONFIG = {
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": str(HOUR_MS),
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "retention.ms": str(24 * HOUR_MS),
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
}


def state(partitions=4, **changes):
    own = {name.replace("_", "."): value for name, value in changes.items()}
    live = LiveTopic("t", "id", partitions, 1, frozenset())
    return TopicState(live, CONFIG | own, frozenset(own))


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "headrace.toml").write_text(
        '[project]\nname = "demo"\nmodules = ["flow"]\n[kafka]\nbootstrap_servers = "a:1"\n'
        '[sites.waw]\nlongest_cut_hours = 24\n[sites.waw.kafka]\nbootstrap_servers = "b:1"\n'
    )
    return load_settings(tmp_path, environ={})


@pytest.mark.parametrize("link", [MIRRORED, SENT])
def test_topics_that_are_alike_fit(settings, link):
    assert list(link_faults(settings, link, state(), state())) == []


@pytest.mark.parametrize(
    ("link", "source", "target", "message"),
    [
        (MIRRORED, None, state(), "there is no topic clicks at waw"),
        (SENT, state(), None, "there is no topic events at waw"),
        (MIRRORED, state(8), state(4), "clicks has 8 partitions at waw, and waw.clicks has 4"),
        (SENT, state(4), state(8), "clicks has 4 partitions at central, and events has 8"),
        (
            SENT,
            state(max_message_bytes="2000000"),
            state(max_message_bytes="2000000"),
            "takes 2000000 bytes at central, and events takes 2000000 at waw",
        ),
        (SENT, state(), state(max_message_bytes="1000"), "takes 1048588 bytes at central"),
        (MIRRORED, state(), state(message_timestamp_type="LogAppendTime"), "LogAppendTime"),
        (
            MIRRORED,
            state(message_timestamp_after_max_ms=str(2 * HOUR_MS)),
            state(),
            "clicks at waw takes records that are further ahead of the clock than 3600000 ms",
        ),
        (
            MIRRORED,
            state(),
            state(message_timestamp_before_max_ms="5"),
            "further behind the clock than 5 ms, and waw.clicks at central does not",
        ),
        (SENT, state(), state(cleanup_policy="compact"), "takes no record without a key"),
        (MIRRORED, state(retention_ms=str(HOUR_MS)), state(), "at waw keeps records for 1 hours"),
        (SENT, state(retention_ms=str(HOUR_MS)), state(), "at central keeps records for 1 hours"),
        (SENT, state(retention_bytes="1000"), state(), "keeps 1000 bytes of a partition"),
    ],
)
def test_what_does_not_fit_is_named(settings, link, source, target, message):
    [fault] = link_faults(settings, link, source, target)
    assert message in fault.message
    assert fault.remedy


@pytest.mark.parametrize(
    ("link", "source", "target"),
    [
        (SENT, state(), state(message_timestamp_type="LogAppendTime")),
        (SENT, state(max_message_bytes="2000000"), state(max_message_bytes="2000400")),
        (MIRRORED, state(retention_ms="-1", retention_bytes="-1"), state(retention_ms="1")),
        (MIRRORED, state(cleanup_policy="compact", retention_ms="1"), state()),
        (MIRRORED, state(cleanup_policy="compact"), state(cleanup_policy="compact,delete")),
        (SENT, state(message_timestamp_after_max_ms="99999999"), state()),
        (
            MIRRORED,
            state(
                message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms="99999999"
            ),
            state(),
        ),
    ],
)
def test_what_harms_nothing_is_no_fault(settings, link, source, target):
    assert list(link_faults(settings, link, source, target)) == []


def test_a_topic_that_apply_would_make_is_kept_as_the_brokers_say(settings):
    brokers = Brokers(1, {"log.retention.hours": "1"})
    source = planned_topic(Topic("clicks", partitions=4), brokers)
    [fault] = link_faults(settings, SENT, source, state())
    assert "clicks at central keeps records for 1 hours" in fault.message


def test_the_command_compares_what_is_there(tmp_path, broker, topic):
    """One cluster is both sites: only the names of the topics tell them apart."""
    name, servers = topic("clicks"), broker.bootstrap_servers
    (tmp_path / "headrace.toml").write_text(
        f'[project]\nname = "demo"\nmodules = ["flow"]\n[kafka]\nbootstrap_servers = "{servers}"\n'
        f'[sites.waw.kafka]\nbootstrap_servers = "{servers}"\n'
        '[sites.par.kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
    )
    (tmp_path / "flow.py").write_text(
        "from headrace import Dispatcher, Mirror, Topic\n"
        f'copy, clicks = Topic("waw.{name}", partitions=2), Topic("{name}", partitions=2)\n'
        f'mirror = Mirror("waw", source="waw", topics={{"{name}": copy}})\n'
        f'd = Dispatcher("d", clicks, {{"waw": "{name}.away", "par": "x"}})\n'
    )
    config = client_config(KafkaSettings(), servers)
    make_topic(config, name, 2)
    make_topic(config, f"waw.{name}", 3)
    project = load_project(load_settings(tmp_path, environ={}))
    assert [str(link.by) for link in replicated_topics(project)] == [
        "mirror waw",
        *["dispatcher d"] * 2,
    ]
    mirrored, sent, away = answer("sites", "check", "--project", tmp_path, code=3)["links"]
    assert "has 2 partitions at waw" in mirrored["faults"][0]["message"]
    assert f"there is no topic {name}.away at waw" in sent["faults"][0]["message"]
    assert (away["unreachable"], away["faults"]) == ("par", [])
    assert (mirrored["unreachable"], sent["unreachable"]) == ("", "")


def test_a_plan_asks_each_site_once_also_of_topics_that_apply_would_make(tmp_path, monkeypatch):
    (tmp_path / "headrace.toml").write_text(
        '[project]\nname = "demo"\nmodules = ["planned_flow"]\n'
        '[kafka]\nbootstrap_servers = "own:1"\n'
        '[sites.waw.kafka]\nbootstrap_servers = "waw:1"\n'
        '[sites.par.kafka]\nbootstrap_servers = "par:1"\n'
    )
    (tmp_path / "planned_flow.py").write_text(
        "from headrace import Dispatcher, Mirror, Topic\n"
        'large = Topic("waw.large", config={"max.message.bytes": "2000000"})\n'
        'copy, clicks = Topic("waw.clicks"), Topic("clicks")\n'
        'mirror = Mirror("waw", source="waw", topics={"clicks": copy, "large": large})\n'
        'd = Dispatcher("d", clicks, {"par": "x"})\n'
        'e = Dispatcher("e", clicks, {"par": "y"})\n'
    )
    theirs = state(1, message_timestamp_after_max_ms=str(2 * HOUR_MS))

    together = Barrier(3, timeout=LIMIT_SECONDS)

    def states(config, topics):
        together.wait()
        if config["bootstrap.servers"] == "par:1":
            raise BrokerUnreachableError("par:1", "no answer")
        return dict.fromkeys(topics, theirs) if config["bootstrap.servers"] == "waw:1" else {}

    monkeypatch.setattr(site_checks, "topic_states", states)
    monkeypatch.setattr(site_checks, "cluster_id", lambda config: config["bootstrap.servers"])
    brokers = Brokers(1, {"log.message.timestamp.after.max.ms": str(HOUR_MS)})
    project = load_project(load_settings(tmp_path, environ={}))
    clicks, large, away = link_warnings(project, brokers)
    for fault, copy in ((clicks, "waw.clicks"), (large, "waw.large")):
        assert f"and {copy} at" in fault.message
        assert 'config={"message.timestamp.after.max.ms": "7200000"}' in fault.remedy
    assert away.message == "site par does not respond: its topics are not compared"


def test_sites_that_are_one_cluster_are_named(tmp_path, monkeypatch):
    (tmp_path / "headrace.toml").write_text(
        '[project]\nname = "demo"\nmodules = ["one_cluster_flow"]\n'
        '[kafka]\nbootstrap_servers = "own:1"\n'
        '[sites.waw.kafka]\nbootstrap_servers = "same:1"\n'
        '[sites.par.kafka]\nbootstrap_servers = "par:1"\n'
        '[sites.lis.kafka]\nbootstrap_servers = "lis:1"\n'
    )
    (tmp_path / "one_cluster_flow.py").write_text(
        "from headrace import Dispatcher, Mirror, Topic\n"
        'views, clicks, copy = Topic("views"), Topic("clicks"), Topic("waw.views")\n'
        'mirror = Mirror("waw", source="waw", topics={"clicks": clicks, "views": copy})\n'
        'd = Dispatcher("d", views, {"par": "views", "lis": "views"})\n'
    )
    clusters = {"own:1": "A", "same:1": "A", "par:1": "B", "lis:1": "B"}
    monkeypatch.setattr(
        site_checks, "topic_states", lambda _, topics: dict.fromkeys(topics, state())
    )
    monkeypatch.setattr(
        site_checks, "cluster_id", lambda config: clusters[config["bootstrap.servers"]]
    )
    links = answer("sites", "check", "--project", tmp_path, code=3)["links"]
    assert [[fault["message"] for fault in link["faults"]] for link in links] == [
        ["sites central and waw are one cluster, A"],
        [],
        ["sites lis and par are one cluster, B"],
        ["sites par and lis are one cluster, B"],
    ]
    assert "[sites.waw.kafka]" in links[0]["faults"][0]["remedy"]
