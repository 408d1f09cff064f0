"""Webhooks: what is signed is taken once for each delivery, and nothing else is."""

import functools
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.ingest.application import PUSHES

from headrace.ingest.figures.service_metrics import EVENTS
from headrace.ingest.tokens.token import TokenKind, webhook_secret
from headrace.settings import IngestSettings, Rate, Secret

KEY = Secret("k" * 32)
BODY = b'{"action":"opened","repository":{"full_name":"acme/shop"}}'
PATH = "/v1/webhooks/abcdefgh-123"


@pytest.fixture
def github(make):
    """Makes applications that take GitHub's webhooks into ``pushes``."""
    facts = {"kind": TokenKind.GITHUB, "topics": ("pushes",), "generation": 3}
    return functools.partial(make, IngestSettings(webhook_key=KEY), PUSHES, **facts)


def signature(body=BODY, secret=None):
    secret = webhook_secret(KEY, "abcdefgh-123", 3) if secret is None else secret
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def deliver(asked, body=BODY, path=PATH, **headers):
    sent = {
        "authorization": "",
        "content_type": "application/json",
        "x_github_delivery": "72d3162e-cc78",
        "x_github_event": "issues",
        "x_hub_signature_256": signature(body),
    }
    return asked(path, body, **sent | headers)


def test_a_signed_delivery_is_an_event_with_the_id_of_the_delivery(github):
    asked = github()
    status, _, document = deliver(asked)
    assert (status, document) == (202, {"accepted": 1, "rejected": []})
    ((topic, value, headers),) = asked.acceptance.taken
    assert topic == "pushes"
    assert value == (b'{"x_github_delivery":"72d3162e-cc78","x_github_event":"issues",' + BODY[1:])
    assert headers == [("account", b"acme"), ("project", b"shop")]


def test_headers_that_the_event_declares_go_into_it_and_others_do_not(github):
    asked = github()
    assert deliver(asked, b" { }\n", x_github_hook_id="7", x_github_other="no")[0] == 202
    ((_, value, _),) = asked.acceptance.taken
    assert json.loads(value) == {
        "x_github_delivery": "72d3162e-cc78",
        "x_github_event": "issues",
        "x_github_hook_id": "7",
    }


def test_a_delivery_that_is_sent_again_is_the_same_event(github):
    asked = github()
    assert [deliver(asked)[0] for _ in range(2)] == [202, 202]
    first, second = asked.acceptance.taken
    assert first == second


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "sha256=",
        "sha256=" + "0" * 64,
        signature().removeprefix("sha256="),
        signature().replace("sha256", "sha1"),
        signature().upper(),
        signature(secret=""),
        signature(secret="k" * 32),
        signature(BODY + b" "),
        signature(secret=webhook_secret(KEY, "abcdefgh-123", 2)),
        signature(secret=webhook_secret(KEY, "abcdefgh-124", 3)),
    ],
)
def test_what_is_not_signed_with_its_secret_is_refused_and_costs_the_webhook_nothing(github, wrong):
    asked = github(rate=Rate(events_per_second=5))
    status, headers, document = deliver(asked, x_hub_signature_256=wrong)
    assert (status, document["code"]) == (401, "no-valid-signature")
    assert headers[b"connection"] == b"close"
    assert (asked.limiter.charges, asked.acceptance.taken) == ([], [])


def test_the_former_secret_signs_until_the_overlap_ends(github):
    soon, past = (datetime.now(UTC) + timedelta(hours=hours) for hours in (1, -1))
    former = signature(secret=webhook_secret(KEY, "abcdefgh-123", 2))
    for until, status in ((soon, 202), (past, 401)):
        asked = github(former_until=until)
        assert deliver(asked, x_hub_signature_256=former)[0] == status
        assert deliver(asked)[0] == 202
    before_it = signature(secret=webhook_secret(KEY, "abcdefgh-123", 1))
    assert deliver(github(former_until=soon), x_hub_signature_256=before_it)[0] == 401


def test_an_unknown_webhook_is_refused_before_its_body_is_read(github):
    asked = github()
    for path in (PATH + "4", "/v1/webhooks/", "/v1/webhooks/*"):
        assert deliver(asked, path=path)[2]["code"] == "no-valid-token"
    revoked = github(revoked=datetime.now(UTC))
    assert deliver(revoked)[2]["code"] == "no-valid-token"
    assert (asked.read, revoked.read) == (0, 0)


def test_until_tokens_are_those_of_kafka_a_webhook_is_not_refused_for_good(github):
    asked = github()
    asked.tokens.are_current = False
    newer = signature(secret=webhook_secret(KEY, "abcdefgh-123", 4))
    assert deliver(asked)[0] == 202
    assert deliver(asked, x_hub_signature_256=newer)[2]["code"] == "not-ready"
    assert deliver(asked, path=PATH + "4")[2]["code"] == "not-ready"


def test_a_token_is_no_webhook(make):
    assert deliver(make(IngestSettings(webhook_key=KEY)))[2]["code"] == "no-valid-token"


def test_a_webhook_is_no_token(github):
    asked = github()
    asked.text = "hr_abcdefgh-123_" + "x" * 32
    assert asked.post(BODY, topic="pushes")[0] == 401


def test_without_a_key_on_this_host_a_webhook_is_not_taken(github):
    asked = github()
    asked.application._intake._webhooks._key = None
    status, _, document = deliver(asked)
    assert (status, document["code"]) == (503, "not-ready")
    assert "ingest.webhook_key" in document["detail"]


def test_a_ping_only_tries_the_connection(github):
    asked = github()
    status, _, document = deliver(asked, b'{"zen":"x"}', x_github_event="ping")
    assert (status, document) == (200, {"accepted": 0, "rejected": []})
    assert asked.acceptance.taken == []
    unsigned = deliver(asked, x_github_event="ping", x_hub_signature_256="")
    assert unsigned[0] == 401


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"[1]", {}, 400, "not-an-object"),
        (b"", {}, 400, "empty"),
        (b'{"x_github_event":"forged"}', {}, 400, "repeated-key"),
        (b"{}", {"x_github_delivery": ""}, 400, "missing-field"),
        (b"{}", {"x_github_delivery": "a b"}, 400, "bad-event-id"),
        (b"{}", {"content_type": "application/x-www-form-urlencoded"}, 415, "unknown-content-type"),
    ],
)
def test_a_signed_delivery_is_checked_like_any_event(github, body, headers, status, code):
    asked = github()
    answered, _, document = deliver(asked, body, **headers)
    assert (answered, document["code"]) == (status, code)
    assert asked.acceptance.taken == []


def test_deliveries_are_charged_and_counted_like_any_event(github):
    asked = github(rate=Rate(events_per_second=5))
    assert deliver(asked)[0] == 202
    assert asked.limiter.charges == [("token/abcdefgh-123/events", 1)]
    assert asked.application._counters.totals()[EVENTS, "pushes", "accepted"] == 1
    asked.limiter.wait = 2.5
    assert deliver(asked)[0] == 429


def test_a_webhook_is_asked_by_post(github):
    status, headers, _ = github()(PATH, method="GET", authorization="")
    assert (status, headers[b"allow"]) == (405, b"POST")


def test_a_webhook_of_a_topic_that_is_not_served_is_refused(github):
    asked = github()
    asked.application._intake._checks.clear()
    assert deliver(asked)[2]["code"] == "no-such-topic"


def test_secrets_differ_by_key_webhook_and_generation():
    secrets = {
        webhook_secret(KEY, "abcdefgh-123", 1),
        webhook_secret(KEY, "abcdefgh-123", 2),
        webhook_secret(KEY, "abcdefgh-124", 1),
        webhook_secret(Secret("l" * 32), "abcdefgh-123", 1),
    }
    assert len(secrets) == 4
    assert {len(secret) for secret in secrets} == {48}
