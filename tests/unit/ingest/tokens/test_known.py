"""Tokens outlive a restart while Kafka is away: in a file that follows the registry."""

import stat
import threading
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from tests.waiting import LIMIT_SECONDS

from headrace.errors import BrokerUnreachableError
from headrace.ingest import service as ingest
from headrace.ingest.tokens import known as known_tokens
from headrace.ingest.tokens.known import KnownTokens
from headrace.ingest.tokens.token import Token, issue
from headrace.model import Topic

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def token(public_id, **facts):
    return issue(Token(public_id, "web", "shop", "acme", ("*",), "", NOW, **facts))[0]


class Registry:
    def __init__(self, *found, ready=True):
        self.found = {one.public_id: one for one in found}
        self.ready, self.changes = ready, len(found)

    def get(self, public_id):
        return self.found.get(public_id)

    def tokens(self):
        return self.found

    def take(self, one):
        self.found[one.public_id] = one
        self.changes += 1


@pytest.fixture
def known(tmp_path):
    made = []

    def opening(registry, save_seconds=1.0):
        made.append(KnownTokens(registry, tmp_path / "tokens", save_seconds))
        return made[-1]

    yield opening
    for one in made:
        one.close()


def test_without_a_file_tokens_are_known_once_the_registry_was_read(known):
    registry = Registry(token("a"), ready=False)
    tokens = known(registry)
    assert not tokens.ready
    registry.ready = True
    assert tokens.ready
    assert tokens.get("a") == registry.found["a"]


def test_after_a_restart_tokens_are_those_that_were_known_last(known):
    wanted = token("a")
    known(Registry(wanted)).keep()
    while_away = known(Registry(ready=False))
    assert (while_away.ready, while_away.are_current) == (True, False)
    assert while_away.get("a") == wanted
    assert while_away.get("b") is None


def test_what_is_being_read_again_revives_no_token(known):
    """The topic holds an older record of the token before the one that revokes it."""
    registry = Registry(token("a", revoked=NOW))
    known(registry).keep()
    reading = Registry(token("a"), ready=False)
    assert known(reading).get("a").revoked == NOW


def test_a_change_replaces_the_file_and_a_token_that_is_gone_is_gone_from_it(known):
    registry = Registry(token("a"))
    tokens = known(registry)
    tokens.keep()
    registry.take(token("b", revoked=NOW))
    registry.found.pop("a")
    tokens.keep()
    later = known(Registry(ready=False))
    assert later.get("a") is None
    assert later.get("b").revoked == NOW


def test_the_file_is_for_this_user_alone_and_holds_no_secret(known, tmp_path):
    wanted, text = issue(token("a"))
    known(Registry(wanted)).keep()
    file = tmp_path / "tokens"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert text.partition("_a_")[2].encode() not in file.read_bytes()
    assert [one.name for one in tmp_path.iterdir()] == ["tokens"]


def test_an_error_of_any_kind_does_not_end_the_thread_that_keeps_tokens(known, caplog):
    class Changing(Registry):
        def __init__(self, *found):
            super().__init__(*found)
            self.asked, self.asked_again = False, threading.Event()

        def tokens(self):
            if not self.asked:
                self.asked = True
                raise RuntimeError("dictionary changed size during iteration")
            self.asked_again.set()
            return self.found

    registry = Changing(token("a"))
    known(registry, save_seconds=0.01)
    assert registry.asked_again.wait(LIMIT_SECONDS)
    assert "Saving the tokens failed" in caplog.text


def test_nothing_is_kept_of_a_registry_that_was_not_read(known, tmp_path):
    known(Registry(token("a"), ready=False)).keep()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_can_not_be_read_is_no_token(known, tmp_path, caplog):
    (tmp_path / "tokens").write_bytes(b"{")
    assert not known(Registry(ready=False)).ready
    assert "Cannot read" in caplog.text


def test_a_disk_that_fails_is_logged_and_tried_again(known, tmp_path, monkeypatch, caplog):
    def failing(*_, **__):
        raise OSError("No space left on device")

    tokens = known(Registry(token("a")))
    monkeypatch.setattr(known_tokens, "replace_file", failing)
    tokens.keep()
    assert "No space left" in caplog.text
    monkeypatch.undo()
    tokens.keep()
    assert (tmp_path / "tokens").exists()


@pytest.mark.parametrize("spool", [True, False])
def test_the_service_starts_without_kafka_if_a_topic_has_a_spool(monkeypatch, spool, caplog):
    def away(_):
        raise BrokerUnreachableError("localhost:1", "Connection refused")

    config = SimpleNamespace(client={}, topics={"t": Topic("t", spool=spool)})
    monkeypatch.setattr(ingest.registry, "ensure_registry", away)
    if spool:
        ingest._ensure_registry(config)
        assert "Starting without Kafka" in caplog.text
    else:
        with pytest.raises(BrokerUnreachableError):
            ingest._ensure_registry(config)
