"""Web pages: which may send events, with which key, and what they may read of the answer."""

import pytest
from tests.unit.ingest.application import event

from headrace.ingest.tokens.token import TokenKind, TokenScope
from headrace.settings import IngestSettings, Rate

SHOP = "https://shop.example.com"
LISTED = IngestSettings(cors_origins=(SHOP, "http://localhost:3000"))
EVENTS = "/v1/topics/occurrences/events"


@pytest.fixture
def page(make):
    """An application whose token is a public key, for the pages of two origins."""
    return make(LISTED, kind=TokenKind.PUBLIC, scopes=(TokenScope.WRITE,))


def beacon(asked, body, path=EVENTS, **headers):
    """What ``navigator.sendBeacon(url, text)`` sends: no header of its own, the key in the URL."""
    sent = {"authorization": "", "content_type": "text/plain;charset=UTF-8", "origin": SHOP}
    return asked(f"{path}?key={asked.text}", body, **sent | headers)


def test_a_beacon_is_taken_with_its_key_in_the_address(page):
    status, headers, document = beacon(page, event())
    assert (status, document["accepted"]) == (202, 1)
    assert headers[b"access-control-allow-origin"] == SHOP.encode()
    assert headers[b"vary"] == b"origin"
    assert b"retry-after" in headers[b"access-control-expose-headers"]
    ((topic, value, record_headers),) = page.acceptance.taken
    assert (topic, value) == ("occurrences", event())
    assert record_headers == [("account", b"acme"), ("project", b"shop")]


def test_a_fetch_is_taken_with_its_key_in_the_header(page):
    status, _, document = page.post(event(), origin=SHOP, content_type="application/json")
    assert (status, document["accepted"]) == (202, 1)


def test_a_program_without_origin_is_taken_with_a_public_key(page):
    status, headers, _ = beacon(page, event(), origin="")
    assert status == 202
    assert b"vary" not in headers


def test_a_page_of_another_origin_cannot_use_a_public_key(page):
    for origin in ("https://evil.example.com", "null", SHOP + ":8443", SHOP.upper()):
        status, headers, document = beacon(page, event(), origin=origin)
        assert (status, document["code"]) == (403, "origin-not-allowed")
        assert b"access-control-allow-origin" not in headers
    assert (page.read, page.acceptance.taken) == (0, [])


def test_without_origins_no_page_can_use_a_public_key(make):
    asked = make(kind=TokenKind.PUBLIC, scopes=(TokenScope.WRITE,))
    assert beacon(asked, event())[2]["code"] == "origin-not-allowed"


def test_all_origins_may_be_allowed(make):
    asked = make(IngestSettings(cors_origins=("*",)), kind=TokenKind.PUBLIC)
    status, headers, _ = beacon(asked, event(), origin="null")
    assert (status, headers[b"access-control-allow-origin"]) == (202, b"null")


def test_a_public_key_only_sends_events_to_its_topics(page):
    status, _, document = beacon(page, event(), path="/v1/topics/other/events")
    assert (status, document["code"]) == (403, "not-allowed")
    for path in ("/metrics", "/openapi.json"):
        assert page(path, method="GET", origin=SHOP)[0] == 403


def test_a_refusal_can_be_read_by_the_page_that_caused_it(make):
    asked = make(LISTED, kind=TokenKind.PUBLIC, rate=Rate(events_per_second=5))
    invalid = beacon(asked, b"no json")
    asked.limiter.wait = 2.5
    limited = beacon(asked, event())
    assert (invalid[0], limited[0]) == (400, 429)
    for _, headers, _ in (invalid, limited):
        assert headers[b"access-control-allow-origin"] == SHOP.encode()


def test_a_secret_token_is_not_taken_in_the_address(make):
    asked = make(LISTED)
    for origin in ("", SHOP):
        status, _, document = beacon(asked, event(), origin=origin)
        assert (status, document["code"]) == (401, "no-valid-token")
        assert "rotate it" in document["detail"]
        assert asked.text not in document["detail"]


def test_a_secret_token_from_another_page_is_taken_and_its_answer_kept_from_the_page(make):
    status, headers, _ = make(LISTED).post(event(), origin="https://evil.example.com")
    assert status == 202
    assert b"access-control-allow-origin" not in headers


def preflight(asked, **headers):
    asked_for = {"origin": SHOP, "access_control_request_method": "POST", "authorization": ""}
    return asked(EVENTS, method="OPTIONS", **asked_for | headers)


def test_a_preflight_is_answered_without_a_token(make):
    status, headers, body = preflight(make(LISTED))
    assert (status, body) == (200, "")
    assert headers[b"access-control-allow-origin"] == SHOP.encode()
    assert b"POST" in headers[b"access-control-allow-methods"]
    assert {b"authorization", b"content-type", b"content-encoding"} <= set(
        headers[b"access-control-allow-headers"].split(b", ")
    )
    assert headers[b"access-control-max-age"] == b"7200"
    assert headers[b"connection"] == b"close"
    assert b"access-control-allow-credentials" not in headers


def test_a_preflight_of_another_origin_is_refused(make):
    status, headers, document = preflight(make(LISTED), origin="https://evil.example.com")
    assert (status, document["code"]) == (403, "origin-not-allowed")
    assert b"access-control-allow-origin" not in headers


def test_options_without_a_preflight_need_a_token_as_ever(make):
    for missing in ("origin", "access_control_request_method"):
        assert preflight(make(LISTED), **{missing: ""})[0] == 401
    assert make(LISTED)(EVENTS, method="OPTIONS")[0] == 405
