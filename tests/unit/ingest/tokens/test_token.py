"""Tokens: recognised by their text, which nothing keeps."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headrace.ingest.tokens.token import (
    Refusal,
    Token,
    TokenKind,
    TokenScope,
    authenticate,
    issue,
    new_public_id,
)
from headrace.settings import Rate

NOW = datetime(2026, 5, 1, tzinfo=UTC)
WANTED = Token(
    public_id="abcdefgh-123",
    name="web",
    project="shop",
    account="acme",
    topics=("clicks",),
    secret_sha256="",
    created=NOW,
    expires=NOW + timedelta(days=1),
    rate=Rate(events_per_second=5),
)


def test_a_token_is_recognised_by_its_text():
    token, text = issue(WANTED)
    assert authenticate(text, {token.public_id: token}.get, NOW) == token


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"revoked": NOW}, Refusal.REVOKED),
        ({"expires": NOW}, Refusal.EXPIRED),
        ({"secret_sha256": "0" * 64}, Refusal.UNKNOWN),
        ({"secret_sha256": ""}, Refusal.UNKNOWN),
    ],
)
def test_a_token_that_ended_is_refused(change, why):
    token, text = issue(WANTED)
    changed = replace(token, **change)
    assert authenticate(text, {changed.public_id: changed}.get, NOW) is why


def test_an_unknown_token_is_refused():
    _, text = issue(WANTED)
    assert authenticate(text, {}.get, NOW) is Refusal.UNKNOWN


@pytest.mark.parametrize("text", ["", "hr_", "hr__", "x" * 48, "hr_abc_def", "\u00e9" * 48])
def test_what_has_not_the_form_of_a_token_is_refused(text):
    assert authenticate(text, {}.get, NOW) is Refusal.MALFORMED


def test_another_secret_ends_the_last_one():
    first, old = issue(WANTED)
    second, new = issue(first)
    assert authenticate(old, {second.public_id: second}.get, NOW) is Refusal.UNKNOWN
    assert authenticate(new, {second.public_id: second}.get, NOW) == second


def test_neither_the_token_nor_its_value_holds_the_secret():
    token, text = issue(WANTED)
    secret = text.split("_", 2)[2]
    assert secret not in repr(token)
    assert secret.encode() not in token.encoded()
    assert Token.decoded(token.encoded()) == token


def test_public_ids_and_secrets_are_random():
    assert len({new_public_id() for _ in range(1000)}) == 1000
    assert len({issue(WANTED)[1] for _ in range(1000)}) == 1000
    assert all("_" not in new_public_id() for _ in range(1000))


def test_a_public_id_never_begins_with_a_dash(monkeypatch):
    drawn = iter(["_a-b_cdefghi", "-abcdefghijk", "a_bcdefghijk"])
    monkeypatch.setattr("headrace.ingest.tokens.token.secrets.token_urlsafe", lambda _: next(drawn))
    assert new_public_id() == "a-bcdefghijk"


def test_a_token_is_for_its_topics():
    assert WANTED.may_write("clicks")
    assert not WANTED.may_write("other")
    assert replace(WANTED, topics=("*",)).may_write("other")


def test_a_token_has_scopes():
    assert [scope.value for scope in TokenScope if WANTED.may(scope)] == ["write", "describe"]
    scraper = replace(WANTED, scopes=("metrics",))
    assert scraper.may(TokenScope.METRICS)
    assert not scraper.may_write("clicks")


def test_the_last_secret_is_good_until_the_overlap_ends():
    first, old = issue(WANTED)
    end = NOW + timedelta(hours=1)
    former = replace(first, former_sha256=first.secret_sha256, former_until=end)
    second, new = issue(former)
    lookup = {second.public_id: second}.get
    for text in (old, new):
        assert authenticate(text, lookup, NOW) == second
    assert authenticate(old, lookup, end) is Refusal.UNKNOWN
    revoked = replace(second, revoked=NOW)
    assert authenticate(old, {second.public_id: revoked}.get, NOW) is Refusal.REVOKED


def test_the_text_of_a_public_key_says_what_it_is():
    key, text = issue(replace(WANTED, kind=TokenKind.PUBLIC))
    lookup = {key.public_id: key}.get
    assert text.startswith("hrpub_")
    assert authenticate(text, lookup, NOW) == key == Token.decoded(key.encoded())
    assert authenticate(text, lookup, NOW, TokenKind.PUBLIC) == key
    assert authenticate(text.replace("hrpub_", "hr_"), lookup, NOW) is Refusal.UNKNOWN


def test_where_only_public_keys_are_taken_no_other_token_is():
    token, text = issue(WANTED)
    lookup = {token.public_id: token}.get
    assert authenticate(text, lookup, NOW, TokenKind.PUBLIC) is Refusal.MALFORMED
    assert authenticate(text.replace("hr_", "hrpub_"), lookup, NOW) is Refusal.UNKNOWN
