"""What the HTTP service is told, and what it can't be told."""

import os
import pickle
import socket
import sys

import pytest

from headrace.errors import (
    BrokerUnreachableError,
    ProjectError,
    ServerStartError,
    ServiceRunningError,
)
from headrace.ingest import service as ingest
from headrace.ingest.config import IngestConfig
from headrace.ingest.service import ingest_config
from headrace.ingest.tokens import registry
from headrace.ingest.tokens.token import Token
from headrace.model import Topic
from headrace.project.loaded import LoadedProject
from headrace.queries.declaration import StandingQueries
from headrace.queries.serve import load_project_queries
from headrace.runtime.servers.ports import free_ports
from headrace.settings import IngestSettings, load_settings

FILE = """
[project]
name = "ads"
modules = ["flow"]

[ingest]
redis = "redis://u:${PASSWORD}@cache:6379/0"
"""


def test_without_the_client_of_redis_the_service_says_how_to_install_it(tmp_path, monkeypatch):
    (tmp_path / "headrace.toml").write_text(FILE)
    project = LoadedProject(load_settings(tmp_path, {"PASSWORD": "hunter2"}))
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ProjectError) as raised:
        ingest_config(project)
    said = str(raised.value)
    assert "ingest.redis is 'redis://***@cache:6379/0'" in said
    assert "pip install 'headrace[redis]'" in said
    assert "hunter2" not in said


def test_a_topic_that_other_programs_give_keys_is_not_served(tmp_path):
    (tmp_path / "headrace.toml").write_text(FILE.replace("redis =", "# redis ="))
    topic = Topic("readers", event=Token, compaction=True)
    project = LoadedProject(load_settings(tmp_path, {}), (topic,))
    with pytest.raises(ProjectError, match="with a key if compacted"):
        ingest_config(project)


@pytest.mark.parametrize("declared", [(), (StandingQueries("ads"),)])
def test_queries_are_answered_where_they_are_declared(tmp_path, declared):
    """What loads them travels to each process of the service."""
    kafka = '[kafka]\nbootstrap_servers = "127.0.0.1:9092"\n'
    (tmp_path / "headrace.toml").write_text(FILE.replace("redis =", "# redis =") + kafka)
    topic = Topic("tokens", event=Token, spool=True)
    project = LoadedProject(load_settings(tmp_path, {}), (topic, *declared))
    load_queries = ingest_config(project).queries
    assert (load_queries is not None) is bool(declared)
    if load_queries is not None:
        sent = pickle.loads(pickle.dumps(load_queries))
        assert (sent.func, sent.args) == (load_project_queries, (project.settings,))


@pytest.fixture
def config(tmp_path):
    [port] = free_ports(1)
    serving = IngestSettings(port=port, max_connections=16)
    return IngestConfig(serving, {}, {}, tmp_path / "state", "ads", tmp_path / "log")


def test_a_taken_port_is_said_before_the_service_says_that_it_serves(config):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", config.settings.port))
        taken.listen()
        with pytest.raises(ServerStartError, match="is taken"), ingest.reserved(config):
            pass


def test_without_kafka_no_service_is_said_to_serve(config, monkeypatch):
    def away(_):
        raise BrokerUnreachableError("k:9092", "no answer")

    monkeypatch.setattr(registry, "ensure_registry", away)
    with pytest.raises(BrokerUnreachableError), ingest.reserved(config):
        pass


def test_a_second_service_of_a_project_is_refused(config, monkeypatch):
    monkeypatch.setattr(registry, "ensure_registry", lambda _: None)
    running, second = ingest.reserved(config), ingest.reserved(config)
    with running, pytest.raises(ServiceRunningError) as caught, second:
        pass
    assert caught.value.pid == str(os.getpid())
