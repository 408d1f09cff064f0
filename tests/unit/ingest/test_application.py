"""The path of a request through the application, without a server and without Kafka."""

import json
import re
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.unit.ingest.application import NOW, Limiter, event

from headrace.ingest.events.delivery import (
    NotTakenError,
    QueueFullError,
    RejectedByKafkaError,
    UnknownOutcomeError,
)
from headrace.ingest.figures.service_metrics import EVENT_CODES, EVENTS, UNAVAILABLE
from headrace.ingest.http.problem import REQUEST_CODES
from headrace.ingest.tokens.token import issue
from headrace.model import ByAccount, Topic
from headrace.settings import IngestSettings, Rate, Secret

# Of a token that was made, and of one that was rotated, after this host knew tokens last.
NEWER = [{"public_id": "abcdefgh-new"}, {}]
RATE = Rate(events_per_second=5, bytes_per_second=1000)


@pytest.mark.parametrize(
    ("body", "headers", "status", "size"),
    [
        (b"[" + b"1," * 2000 + b"1]", {}, 413, 4003),
        (b"{}", {"content_type": "text/html"}, 415, 0),
        (b"{}", {"content_encoding": "br"}, 415, 0),
        (b"[1", {}, 400, 2),
        (b"no gzip", {"content_encoding": "gzip"}, 400, 7),
        (b"x" * 1_000_001, {}, 413, 0),
    ],
)
def test_what_is_refused_as_a_whole_is_charged(make, body, headers, status, size):
    asked = make(rate=RATE)
    assert asked.post(body, **headers)[0] == status
    assert asked.limiter.charges == [
        ("token/abcdefgh-123/events", 1),
        ("token/abcdefgh-123/bytes", size),
    ]
    assert asked.acceptance.taken == []


def test_until_tokens_are_those_of_kafka_one_that_is_not_known_is_not_refused_for_good(make):
    asked = make()
    [unknown, other_secret] = (issue(replace(asked.token, **facts))[1] for facts in NEWER)
    for are_current, status, code in ((False, 503, "not-ready"), (True, 401, "no-valid-token")):
        asked.tokens.are_current = are_current
        assert asked.post(event())[0] == 202
        for text in (unknown, other_secret):
            found, headers, document = asked.post(event(), authorization=f"Bearer {text}")
            assert (found, document["code"]) == (status, code)
            assert (b"retry-after" in headers) is not are_current


def test_while_tokens_are_read_again_what_is_no_token_or_was_revoked_is_refused_for_good(make):
    asked = make(revoked=NOW)
    asked.tokens.are_current = False
    for text in (asked.text, "hr_short", asked.text.replace("hr_", "xx_")):
        assert asked.post(event(), authorization=f"Bearer {text}")[0] == 401


def test_a_token_over_its_limit_is_refused_before_its_body_is_read(make):
    asked = make(rate=RATE)
    asked.limiter.wait = 2.5
    assert asked.post(event())[0] == 429
    assert asked.read == 1
    status, headers, document = asked.post(event())
    assert (status, headers[b"retry-after"], document["code"]) == (429, b"3", "rate-limited")
    assert asked.read == 1
    asked.now[0], asked.limiter.wait = 2.5, 0.0
    assert asked.post(event())[0] == 202
    assert asked.read == 2


def test_a_request_is_charged_its_events_and_bytes_once(make):
    asked = make(rate=RATE)
    body = b"[" + event(1) + b"," + event(2) + b"]"
    assert asked.post(body)[0] == 202
    assert asked.limiter.charges == [
        ("token/abcdefgh-123/events", 2),
        ("token/abcdefgh-123/bytes", 2 * len(event())),
    ]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, {"events": 10, "bytes": 100}),
        (Rate(events_per_second=5), {"events": 5, "bytes": 100}),
        (Rate(bytes_per_second=7), {"events": 10, "bytes": 7}),
        (Rate(5, 7), {"events": 5, "bytes": 7}),
    ],
)
def test_the_limits_of_a_token_and_the_service_are_merged_one_by_one(make, own, expected):
    found = {}

    class Rates(Limiter):
        async def acquire(self, charges):
            found.update({one.bucket.rpartition("/")[2]: one.per_second for one in charges})
            return 0.0

    asked = make(IngestSettings(token_rate=Rate(10, 100)), rate=own)
    asked.application._gate._limiter = Rates()
    assert asked.post(event())[0] == 202
    assert found == expected


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/healthz", {}),
        ("/readyz", {}),
        ("/healthz", {"content_length": "1" * 20_000}),
        ("/v1/topics/occurrences/events", {"authorization": ""}),
        ("/metrics", {"authorization": "Bearer hr_no"}),
    ],
)
def test_who_shows_no_token_gets_one_answer_a_connection(make, path, headers):
    asked = make()
    assert asked(path, method="GET", **headers)[1][b"connection"] == b"close"
    assert b"connection" not in asked.post(event())[1]


@pytest.mark.parametrize("encoding", ["gzip, chunked", "identity", "chunked, chunked"])
def test_a_body_that_is_coded_on_its_way_is_refused(make, encoding):
    asked = make()
    status, _, document = asked.post(event(), transfer_encoding=encoding)
    assert (status, document["code"]) == (400, "unknown-transfer-encoding")
    assert asked.post(event(), transfer_encoding="Chunked")[0] == 202


def test_beyond_the_budget_nothing_is_taken_and_nothing_charged(make):
    asked = make(IngestSettings(max_memory_bytes=10), rate=RATE)
    status, headers, document = asked.post(event())
    assert (status, document["code"]) == (503, "overloaded")
    assert b"retry-after" in headers
    assert (asked.limiter.charges, asked.acceptance.taken) == ([], [])


@pytest.mark.parametrize(
    "headers",
    [
        {"content_type": "x" * 9000},
        {"content_encoding": "x" * 9000},
        {"transfer_encoding": "x" * 9000},
        {"method": "x" * 9000},
    ],
)
def test_what_a_client_sent_is_not_sent_back_in_full(make, headers):
    _, _, document = make().post(event(), **headers)
    assert len(document["detail"]) <= 500


@pytest.mark.parametrize(("events", "thread"), [(4, "MainThread"), (5, "body_0")])
def test_a_large_request_is_checked_beside_the_event_loop(make, monkeypatch, events, thread):
    """The interpreter passes from thread to thread, so that others are answered meanwhile."""
    asked, seen = make(), []
    check = asked.application._intake._checks["occurrences"]
    real = check.batch
    monkeypatch.setattr(
        check, "batch", lambda *of: seen.append(threading.current_thread().name) or real(*of)
    )
    texts = [
        json.dumps({"event_id": f"e-{number}", "message": "x" * 60_000}) for number in range(events)
    ]
    status, _, document = asked.post(("[" + ",".join(texts) + "]").encode())
    assert (status, document["accepted"], seen) == (202, events, [thread])


@pytest.mark.parametrize(
    ("path", "scope"), [("/metrics", "metrics"), ("/openapi.json", "describe")]
)
def test_a_page_needs_its_scope(make, path, scope):
    others = tuple({"write", "metrics", "describe"} - {scope})
    status, _, document = make(scopes=others)(path, method="GET")
    assert (status, document["code"]) == (403, "not-allowed")
    assert scope in document["detail"]
    assert make(scopes=(scope,))(path, method="GET")[0] == 200


def test_events_need_the_scope_to_write(make):
    status, _, document = make(scopes=("metrics", "describe")).post(event())
    assert (status, document["code"]) == (403, "not-allowed")


def test_the_description_shows_a_token_its_topics_only(make):
    _, _, document = make(topics=("other",))("/openapi.json", method="GET")
    assert [path for path in document["paths"] if "topics" in path] == ["/v1/topics/other/events"]
    assert "occurrences" not in json.dumps(document)


def test_the_description_names_events_operations_and_codes(make):
    _, _, document = make(topics=("*",))("/openapi.json", method="GET")
    schemas = document["components"]["schemas"]
    assert set(schemas) == {
        "Occurrence.occurrences", "Occurrence.other", "Problem", "Accepted",
    }  # fmt: skip
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names) == 6
    assert all("500" in operation["responses"] for operation in operations)
    readiness = document["paths"]["/readyz"]["get"]
    assert readiness["parameters"][0]["schema"]["items"] == {"enum": ["occurrences", "other"]}
    assert "404" in readiness["responses"]
    post = document["paths"]["/v1/topics/other/events"]["post"]
    assert "Headrace-Spooled" in post["responses"]["202"]["headers"]
    assert post["parameters"][0]["name"] == "Content-Encoding"
    event_schema, array = post["requestBody"]["content"]["application/json"]["schema"]["oneOf"]
    assert event_schema == {"$ref": "#/components/schemas/Occurrence.other"} == array["items"]
    assert array["description"] == "at most 1000 events"
    _, _, alone = make(topics=("other",))("/openapi.json", method="GET")
    assert "Occurrence" in alone["components"]["schemas"]


def test_the_description_names_the_server_and_every_kind_of_credential(make):
    settings = IngestSettings(public_url="https://events.example.com/in", webhook_key=Secret("k"))
    _, _, document = make(settings, topics=("other",))("/openapi.json", method="GET")
    assert document["servers"] == [{"url": "https://events.example.com/in"}]
    schemes = document["components"]["securitySchemes"]
    assert set(schemes) == {"token", "publicKey", "webhookSignature"}
    post = document["paths"]["/v1/topics/other/events"]["post"]
    assert post["security"] == [{"token": []}, {"publicKey": []}]
    webhook = document["paths"]["/v1/webhooks/{id}"]["post"]
    assert webhook["security"] == [{"webhookSignature": []}]
    assert webhook["operationId"] == "deliver-webhook"
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert references == set(document["components"]["schemas"])


def test_without_webhooks_the_description_has_none_and_its_server_is_where_it_is(make):
    _, _, document = make()("/openapi.json", method="GET")
    assert document["servers"] == [{"url": "/"}]
    assert set(document["components"]["securitySchemes"]) == {"token", "publicKey"}
    assert "/v1/webhooks/{id}" not in document["paths"]


def test_the_codes_of_problems_are_those_of_the_page():
    page = (Path(__file__).parents[3] / "docs/reference/ingest.md").read_text()
    rows = page.partition("## Problems")[2].partition("## Tokens")[0].splitlines()
    of_events = {row.split("`")[1] for row in rows if row.startswith("| `")}
    of_requests = {
        code
        for row in rows
        if row[2:5].isdigit()
        for code in row.split("|")[2].strip().strip("`").split("`, `")
    }
    assert of_events == set(EVENT_CODES)
    assert of_requests == set(REQUEST_CODES)


def test_readiness_is_that_of_all_topics_or_of_those_it_is_asked_of(make):
    asked = make()
    status, _, found = asked("/readyz", method="GET")
    assert (status, found["status"], found["tokens"]) == (200, "ready", "known")
    assert found["kafka"] == "answers"
    assert found["topics"] == {"occurrences": "ready", "other": "ready"}
    asked.acceptance.standings = {"occurrences": "spooling", "other": "kafka-away"}
    status, headers, found = asked("/readyz", method="GET")
    assert (status, headers[b"content-type"]) == (503, b"application/problem+json")
    assert (found["code"], found["detail"]) == ("not-ready", "other: kafka-away")
    assert found["topics"]["occurrences"] == "spooling"
    assert asked("/readyz?topic=occurrences", method="GET")[0] == 200
    assert asked("/readyz?topic=occurrences&topic=other", method="GET")[0] == 503
    assert asked("/readyz?topic=none", method="GET")[0] == 404
    assert asked("/readyz?topic=", method="GET")[0] == 404
    assert asked("/readyz?" + "x=1&" * 2000, method="GET")[0] == 503


@pytest.mark.parametrize(
    ("error", "code", "words", "outcome"),
    [
        (QueueFullError(), "overloaded", "nothing of this request was taken", "not-taken"),
        (NotTakenError("topic-missing", "x"), "topic-missing", "nothing of this", "not-taken"),
        (UnknownOutcomeError("late"), "unknown-outcome", "send them again", "unknown"),
        (UnknownOutcomeError("no", "spool-full"), "spool-full", "send them again", "unknown"),
    ],
)
def test_what_is_not_confirmed_says_whether_anything_was_taken_and_is_counted(
    make, error, code, words, outcome
):
    asked = make()
    asked.acceptance.error = error
    status, headers, found = asked.post(event())
    assert (status, found["code"], headers[b"retry-after"]) == (503, code, b"1")
    assert words in found["detail"]
    totals = asked.application._counters.totals()
    assert totals[UNAVAILABLE, "occurrences", code] == 1
    assert totals[EVENTS, "occurrences", outcome] == 1


class Visit:
    event_id: str
    at: datetime


def test_while_spreads_are_not_known_nothing_of_a_topic_that_takes_them_is_taken(make):
    partitioning = ByAccount(timedelta(hours=1), lead=timedelta(days=2))
    visits = Topic("occurrences", event=Visit, event_time="at", partitioning=partitioning)
    asked = make(served={"occurrences": visits})
    body = json.dumps({"event_id": "a", "at": datetime.now(UTC).isoformat()}).encode()
    # Its table is read for the first event: it is empty, and known for two days from now.
    assert asked.post(body)[0] == 202
    late = json.dumps({"event_id": "b", "at": "2020-01-01T00:00:00Z"}).encode()
    asked.spreads._state = (datetime(2026, 1, 1, tzinfo=UTC).timestamp(), {})
    asked.spreads._is_followed = True
    status, headers, found = asked.post(b"[" + late + b"," + body + b"]")
    assert (status, found["code"], headers[b"retry-after"]) == (503, "spreads-unknown", b"1")
    assert "nothing of this request was taken" in found["detail"]
    assert asked.application._counters.totals()[UNAVAILABLE, "occurrences", "spreads-unknown"] == 1
    # A window that began earlier is known.
    assert asked.post(late)[0] == 202
    assert len(asked.acceptance.taken) == 2


def test_a_failure_names_its_request_in_answer_and_log(make, caplog):
    asked = make()
    asked.acceptance.error = ZeroDivisionError("oh")
    status, headers, found = asked.post(event(), x_request_id="mine")
    assert (status, headers[b"x-request-id"]) == (500, b"mine")
    assert found["instance"] == "urn:headrace:request:mine"
    assert "ZeroDivisionError" in caplog.text


def test_what_kafka_will_never_take_is_rejected_by_its_index(make):
    asked = make()
    events = [event(0), b'{"event_id": 5}', event(2), event(3)]
    asked.acceptance.error = RejectedByKafkaError({event(2): "too large"})
    status, _, document = asked.post(b"[" + b",".join(events) + b"]")
    assert (status, document["accepted"]) == (202, 2)
    found = [(one["index"], one["code"], one["status"]) for one in document["rejected"]]
    assert found == [(1, "wrong-type", 400), (2, "rejected-by-kafka", 422)]
    totals = asked.application._counters.totals()
    assert totals[EVENTS, "occurrences", "accepted"] == 2
    assert totals[EVENTS, "occurrences", "rejected"] == 2


def test_a_single_event_that_kafka_will_never_take_is_422(make):
    asked = make()
    asked.acceptance.error = RejectedByKafkaError({event(): "too large"})
    status, _, document = asked.post(event())
    assert (status, document["code"]) == (422, "rejected-by-kafka")
    assert "do not send it again" in document["detail"]


def test_figures_of_accounts_are_bounded(make):
    settings = IngestSettings(metrics_accounts=2)
    for account in ('with "quotes"', "other", "acme", "shop"):
        asked = make(settings, account=account, scopes=("write", "metrics"))
        assert asked.post(b"[" + event(1) + b',{"event_id":7}]')[0] == 202
    _, _, text = asked("/metrics", method="GET")
    name, size = "headrace_ingest_account_events_total", len(event(1))
    counts = [line for line in text.splitlines() if line.startswith(name) and line[-1] != "0"]
    assert counts == [
        f'{name}{{account="other",outcome="accepted"}} 2',
        f'{name}{{account="other",outcome="rejected"}} 2',
        f'{name}{{account="with \\"quotes\\"",outcome="accepted"}} 1',
        f'{name}{{account="with \\"quotes\\"",outcome="rejected"}} 1',
        f'{name}{{account="\'other\'",outcome="accepted"}} 1',
        f'{name}{{account="\'other\'",outcome="rejected"}} 1',
    ]
    assert f'headrace_ingest_account_bytes_total{{account="other"}} {2 * size}' in text
