"""What operators do with tokens."""

import json
import re
import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from click.testing import CliRunner

from headrace.cli.main import main
from headrace.errors import TokenInvalidError, TokenNotTakenError, TokenUnknownError
from headrace.ingest.tokens import operations, registry
from headrace.ingest.tokens.operations import TokenSpec
from headrace.ingest.tokens.token import Refusal, Token, TokenKind, authenticate, issue
from headrace.settings import Rate, load_settings


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
        operations.create_token(settings, wanted)
    assert records == {}


def test_a_token_that_only_reads_figures_needs_no_account(records, settings):
    token, _ = operations.create_token(settings, TokenSpec("prometheus", scopes=["metrics"]))
    assert (token.scopes, token.account, token.project) == (("metrics",), "", "")
    assert not token.may_write("clicks")
    with pytest.raises(TokenInvalidError, match="project"):
        operations.create_token(settings, TokenSpec("both", scopes=["metrics", "write"]))


PUBLIC = TokenSpec("shop", "shop", "acme", ["clicks"], None, Rate(100), (), TokenKind.PUBLIC)


def test_a_public_key_writes_to_its_topics_and_can_be_rotated(records, settings):
    key, first = operations.create_token(settings, PUBLIC)
    assert (key.scopes, key.topics, key.rate) == (("write",), ("clicks",), Rate(100))
    rotated, second = operations.rotate_token(settings, key.public_id, timedelta(hours=1))
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
        operations.create_token(settings, replace(PUBLIC, **change))
    assert records == {}


@pytest.fixture
def with_key(settings, tmp_path):
    """Settings with a key for webhooks."""
    with (tmp_path / "headrace.toml").open("a") as file:
        file.write('[ingest]\nwebhook_key = { env = "KEY" }\n')
    return load_settings(tmp_path, {"KEY": "k" * 32})


WEBHOOK = TokenSpec("repository", "shop", "acme", ["pushes"], kind=TokenKind.GITHUB)


def test_the_registry_holds_nothing_that_could_sign_a_webhook(records, with_key):
    webhook, first = operations.create_token(with_key, WEBHOOK)
    assert (webhook.scopes, webhook.topics, webhook.generation) == (("write",), ("pushes",), 1)
    rotated, second = operations.rotate_token(with_key, webhook.public_id, timedelta(hours=1))
    assert (rotated.generation, rotated.former_until is None) == (2, False)
    assert first != second
    assert first.startswith("hrwh_")
    kept = b"".join(records.values())
    assert not [secret for secret in (first, second, "k" * 32) if secret.encode() in kept]
    assert state_of(first) == state_of(second) == "malformed"
    at_once, _ = operations.rotate_token(with_key, webhook.public_id)
    assert (at_once.generation, at_once.former_until) == (3, None)


@pytest.mark.parametrize("topics", [(), ("*",), ("pushes", "issues")])
def test_a_webhook_sends_to_one_topic(records, with_key, topics):
    with pytest.raises(TokenInvalidError, match="one topic"):
        operations.create_token(with_key, replace(WEBHOOK, topics=topics))
    assert records == {}


def test_a_webhook_needs_a_key(records, settings):
    with pytest.raises(TokenInvalidError, match="webhook_key"):
        operations.create_token(settings, WEBHOOK)


def test_a_rotation_that_began_before_a_revocation_does_not_undo_it(records, settings, monkeypatch):
    token, _ = operations.create_token(settings, WANTED)
    real = registry.write_changelog

    def late(*given):
        monkeypatch.setattr(registry, "write_changelog", real)
        operations.revoke_token(settings, token.public_id)
        real(*given)

    monkeypatch.setattr(registry, "write_changelog", late)
    _, rotated = operations.rotate_token(settings, token.public_id)
    assert state_of(rotated) == "revoked"
    with pytest.raises(TokenUnknownError, match="it is revoked"):
        operations.rotate_token(settings, token.public_id)


def test_the_last_secret_lives_as_long_as_the_overlap(records, settings):
    token, first = operations.create_token(settings, WANTED)
    _, second = operations.rotate_token(settings, token.public_id, timedelta(hours=1))
    assert (state_of(first), state_of(second)) == ("active", "active")
    _, third = operations.rotate_token(settings, token.public_id)
    assert [state_of(one) for one in (first, second, third)] == ["unknown", "unknown", "active"]


def test_an_expired_token_is_not_rotated(records, settings):
    wanted = TokenSpec("web", "shop", "acme", lifetime=timedelta(microseconds=1))
    token, _ = operations.create_token(settings, wanted)
    with pytest.raises(TokenUnknownError, match="it is expired"):
        operations.rotate_token(settings, token.public_id)


def test_a_record_that_cannot_be_read_is_reported_and_holds_up_no_command(records, settings):
    token, text = operations.create_token(settings, WANTED)
    records[b"broken-12345"] = b"{}"
    listed, unreadable = operations.list_tokens(settings)
    assert ([one.public_id for one in listed], unreadable) == ([token.public_id], ["broken-12345"])
    operations.rotate_token(settings, token.public_id, timedelta(hours=1))
    operations.revoke_token(settings, token.public_id)
    assert state_of(text) == "revoked"
    with pytest.raises(TokenUnknownError, match="can't be read"):
        operations.revoke_token(settings, "broken-12345")
    records[b"broken-12345"] = token.encoded().replace(token.public_id.encode(), b"broken-12345")
    assert registry.read_tokens({}).get("broken-12345").revoked


@pytest.mark.parametrize("old", ["-hJq0aLmN2bx", "--Jq0aLmN2bx", "-Jq0-LmN2bxh"])
def test_ids_that_begin_with_a_dash_are_arguments(records, settings, old):
    token, text = operations.create_token(settings, WANTED)
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
    assert operations.namesakes(settings, "web") == [earlier["public_id"], later["public_id"]]
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
        operations.wait_until_known(load_settings(tmp_path, {}), *UNWRITTEN)
        assert Known.statuses == (404,)
        server.shutdown()
        thread.join()


def test_a_service_that_does_not_take_a_token_is_named(settings, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with (tmp_path / "headrace.toml").open("a") as file:
            file.write(f"[ingest]\nport = {port}\n")
        settings = load_settings(tmp_path, {})
        with pytest.raises(TokenNotTakenError, match=f"127.0.0.1:{port}"):
            operations.wait_until_known(settings, *UNWRITTEN, max_wait_seconds=0.2)
