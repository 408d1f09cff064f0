"""What the HTTP service is told, and what it can't be told."""

import json
import os
import re
import socket
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from click.testing import CliRunner

from headrace.cli.main import main
from headrace.errors import (
    BrokerUnreachableError,
    ProjectError,
    ServerStartError,
    ServiceRunningError,
    TokenInvalidError,
    TokenNotTakenError,
    TokenUnknownError,
)
from headrace.ingest import service as ingest
from headrace.ingest.config import IngestConfig
from headrace.ingest.service import TokenSpec, ingest_config
from headrace.ingest.tokens import registry
from headrace.ingest.tokens.token import Refusal, Token, TokenKind, authenticate, issue
from headrace.model import Topic
from headrace.project.loaded import LoadedProject
from headrace.runtime.servers.ports import free_ports
from headrace.settings import IngestSettings, Rate, load_settings

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


@pytest.fixture
def records(monkeypatch):
    """What the registry's topic holds."""
    table = {}
    monkeypatch.setattr(registry, "ensure_changelog", lambda *_: None)
    monkeypatch.setattr(registry, "read_table", lambda *_: dict(table))
    monkeypatch.setattr(registry, "write_changelog", lambda *given: table.update(given[2]))
    return table


@pytest.fixture
def settings(tmp_path):
    text = '[project]\nname = "ads"\nmodules = ["flow"]\n[kafka]\nbootstrap_servers = "k:9092"\n'
    (tmp_path / "headrace.toml").write_text(text)
    return load_settings(tmp_path, {})


def state_of(text, config=None):
    table = registry.read_tokens({})
    found = authenticate(text, table.get, datetime.now(UTC))
    return found.value if isinstance(found, Refusal) else "active"


WANTED = TokenSpec("web", "shop", "acme")


@pytest.mark.parametrize(
    "wanted",
    [
        TokenSpec("", "shop", "acme"),
        TokenSpec("web", "", "acme"),
        TokenSpec("web", "shop", ""),
        TokenSpec("web", "shop", "é" * 129),
        TokenSpec("web", "s" * 257, "acme"),
    ],
)
def test_a_token_needs_names_that_fit_into_records(records, settings, wanted):
    with pytest.raises(TokenInvalidError, match="expected 1 to 256 bytes"):
        ingest.create_token(settings, wanted)
    assert records == {}


def test_a_token_that_only_reads_figures_needs_no_account(records, settings):
    token, _ = ingest.create_token(settings, TokenSpec("prometheus", scopes=["metrics"]))
    assert (token.scopes, token.account, token.project) == (("metrics",), "", "")
    assert not token.may_write("clicks")
    with pytest.raises(TokenInvalidError, match="project"):
        ingest.create_token(settings, TokenSpec("both", scopes=["metrics", "write"]))


PUBLIC = TokenSpec("shop", "shop", "acme", ["clicks"], None, Rate(100), (), TokenKind.PUBLIC)


def test_a_public_key_writes_to_its_topics_and_can_be_rotated(records, settings):
    key, first = ingest.create_token(settings, PUBLIC)
    assert (key.scopes, key.topics, key.rate) == (("write",), ("clicks",), Rate(100))
    rotated, second = ingest.rotate_token(settings, key.public_id, timedelta(hours=1))
    assert (state_of(first), state_of(second)) == ("active", "active")
    assert (rotated.kind, second[:6]) == (TokenKind.PUBLIC, "hrpub_")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"topics": ()}, "topics"),
        ({"topics": ["*"]}, "topics"),
        ({"rate": None}, "events_per_second"),
        ({"rate": Rate(bytes_per_second=5)}, "events_per_second"),
        ({"scopes": ["write", "metrics"]}, "scopes"),
    ],
)
def test_a_public_key_is_bounded(records, settings, change, field):
    with pytest.raises(TokenInvalidError, match=field):
        ingest.create_token(settings, replace(PUBLIC, **change))
    assert records == {}


@pytest.fixture
def with_key(settings, tmp_path):
    """Settings with a key for webhooks."""
    with (tmp_path / "headrace.toml").open("a") as file:
        file.write('[ingest]\nwebhook_key = { env = "KEY" }\n')
    return load_settings(tmp_path, {"KEY": "k" * 32})


WEBHOOK = TokenSpec("repository", "shop", "acme", ["pushes"], kind=TokenKind.GITHUB)


def test_the_registry_holds_nothing_that_could_sign_a_webhook(records, with_key):
    webhook, first = ingest.create_token(with_key, WEBHOOK)
    assert (webhook.scopes, webhook.topics, webhook.generation) == (("write",), ("pushes",), 1)
    rotated, second = ingest.rotate_token(with_key, webhook.public_id, timedelta(hours=1))
    assert (rotated.generation, rotated.former_until is None) == (2, False)
    assert first != second
    assert first.startswith("hrwh_")
    kept = b"".join(records.values())
    assert not [secret for secret in (first, second, "k" * 32) if secret.encode() in kept]
    assert state_of(first) == state_of(second) == "malformed"
    at_once, _ = ingest.rotate_token(with_key, webhook.public_id)
    assert (at_once.generation, at_once.former_until) == (3, None)


@pytest.mark.parametrize("topics", [(), ("*",), ("pushes", "issues")])
def test_a_webhook_sends_to_one_topic(records, with_key, topics):
    with pytest.raises(TokenInvalidError, match="one topic"):
        ingest.create_token(with_key, replace(WEBHOOK, topics=topics))
    assert records == {}


def test_a_webhook_needs_a_key(records, settings):
    with pytest.raises(TokenInvalidError, match="webhook_key"):
        ingest.create_token(settings, WEBHOOK)


def test_a_rotation_that_began_before_a_revocation_does_not_undo_it(records, settings, monkeypatch):
    token, _ = ingest.create_token(settings, WANTED)
    real = registry.write_changelog

    def late(*given):
        monkeypatch.setattr(registry, "write_changelog", real)
        ingest.revoke_token(settings, token.public_id)
        real(*given)

    monkeypatch.setattr(registry, "write_changelog", late)
    _, rotated = ingest.rotate_token(settings, token.public_id)
    assert state_of(rotated) == "revoked"
    with pytest.raises(TokenUnknownError, match="it is revoked"):
        ingest.rotate_token(settings, token.public_id)


def test_the_last_secret_lives_as_long_as_the_overlap(records, settings):
    token, first = ingest.create_token(settings, WANTED)
    _, second = ingest.rotate_token(settings, token.public_id, timedelta(hours=1))
    assert (state_of(first), state_of(second)) == ("active", "active")
    _, third = ingest.rotate_token(settings, token.public_id)
    assert [state_of(one) for one in (first, second, third)] == ["unknown", "unknown", "active"]


def test_an_expired_token_is_not_rotated(records, settings):
    wanted = TokenSpec("web", "shop", "acme", lifetime=timedelta(microseconds=1))
    token, _ = ingest.create_token(settings, wanted)
    with pytest.raises(TokenUnknownError, match="it is expired"):
        ingest.rotate_token(settings, token.public_id)


def test_a_record_that_cannot_be_read_is_reported_and_holds_up_no_command(records, settings):
    token, text = ingest.create_token(settings, WANTED)
    records[b"broken-12345"] = b"{}"
    listed, unreadable = ingest.list_tokens(settings)
    assert ([one.public_id for one in listed], unreadable) == ([token.public_id], ["broken-12345"])
    ingest.rotate_token(settings, token.public_id, timedelta(hours=1))
    ingest.revoke_token(settings, token.public_id)
    assert state_of(text) == "revoked"
    with pytest.raises(TokenUnknownError, match="can't be read"):
        ingest.revoke_token(settings, "broken-12345")
    records[b"broken-12345"] = token.encoded().replace(token.public_id.encode(), b"broken-12345")
    assert registry.read_tokens({}).get("broken-12345").revoked


@pytest.mark.parametrize("old", ["-hJq0aLmN2bx", "--Jq0aLmN2bx", "-Jq0-LmN2bxh"])
def test_ids_that_begin_with_a_dash_are_arguments(records, settings, old):
    token, text = ingest.create_token(settings, WANTED)
    records[old.encode()] = token.encoded().replace(token.public_id.encode(), old.encode())
    for command in ("rotate", "revoke"):
        done = CliRunner().invoke(main, ["tokens", command, old, "--project", str(settings.root)])
        assert done.exit_code == 0, done.output
    assert registry.read_tokens({}).get(old).revoked
    assert state_of(text) == "active"


def test_a_name_that_another_token_has_is_said(records, settings):
    command = ["tokens", "create", "web", "--project-id", "shop", "--account", "acme"]
    command += ["--json", "--project", str(settings.root)]
    first, second = (CliRunner().invoke(main, command) for _ in "ab")
    assert (first.exit_code, first.stderr) == (0, "")
    earlier, later = (json.loads(one.stdout) for one in (first, second))
    assert second.stderr == f"other tokens have the name 'web': {earlier['public_id']}\n"
    assert ingest.namesakes(settings, "web") == [earlier["public_id"], later["public_id"]]
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", later["created"])
    assert (later["scopes"], later["expires"]) == (["write", "describe"], None)


UNWRITTEN = issue(Token("abcdefgh-123", "web", "shop", "acme", ("*",), "", datetime.now(UTC)))


class Known(BaseHTTPRequestHandler):
    """Answers as workers that learn of a token one after the other."""

    statuses: tuple = ()

    def do_GET(self):
        statuses = type(self).statuses
        type(self).statuses = statuses[1:] or statuses
        self.send_response(statuses[0])
        self.end_headers()
        code = "no-such-path" if statuses[0] == 404 else "no-valid-token"
        self.wfile.write(json.dumps({"code": code}).encode())

    def log_message(self, *_):
        pass


def test_a_new_token_is_waited_for_until_every_worker_takes_it(settings, tmp_path):
    Known.statuses = (401, 404, 404, 401, 404)
    with HTTPServer(("127.0.0.1", 0), Known) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with (tmp_path / "headrace.toml").open("a") as file:
            file.write(f"[ingest]\nport = {server.server_port}\n")
        ingest.wait_until_known(load_settings(tmp_path, {}), *UNWRITTEN)
        assert Known.statuses == (404,)
        server.shutdown()
        thread.join()


def test_a_service_that_does_not_take_a_token_is_named(settings, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with (tmp_path / "headrace.toml").open("a") as file:
            file.write(f"[ingest]\nport = {port}\n")
        with pytest.raises(TokenNotTakenError, match=f"127.0.0.1:{port}"):
            ingest.wait_until_known(load_settings(tmp_path, {}), *UNWRITTEN, max_wait_seconds=0.2)


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
