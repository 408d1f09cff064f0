"""Requests for standing queries, without Kafka: what is asked, answered and refused."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.unit.ingest.queries.backend import MemoryBackend

from headrace.errors import (
    BrokerUnreachableError,
    NotDeclaredError,
    QueryInvalidError,
    QueryUnmatchedError,
)
from headrace.ingest.figures.service_metrics import QUERY_STREAMS
from headrace.ingest.http.problem import RefusedRequestError
from headrace.ingest.queries import routes
from headrace.ingest.queries.backend import ResultPage
from headrace.ingest.tokens.token import TokenKind
from headrace.settings import Rate

BOTH = ("read-queries", "write-queries")
NOW, HOUR = datetime.now(UTC), timedelta(hours=1)


@pytest.fixture
def backend():
    return MemoryBackend()


@pytest.fixture
def asked(make, backend):
    return make(queries=backend, scopes=BOTH)


def register(asked, topic="occurrences", **members):
    return asked("/v1/queries", json.dumps({"query": f"FROM {topic}", **members}).encode())


def test_a_registration_is_answered_with_its_address(asked, backend):
    status, headers, document = register(asked, id="a", ttl_seconds=90)
    assert (status, headers[b"location"]) == (201, b"/v1/queries/a")
    assert document == {"id": "a", "text": "FROM occurrences"}
    assert backend.calls == [("register", None, "FROM occurrences", "a", timedelta(seconds=90))]
    assert register(asked, id="a")[0] == 200


def test_standing_queries_are_named_in_the_address(asked, backend):
    body = b'{"query": "FROM occurrences", "id": "a"}'
    _, headers, _ = asked("/v1/queries?in=ads", body)
    assert headers[b"location"] == b"/v1/queries/a?in=ads"
    asked("/v1/queries/a?in=ads", b"{}", method="PUT")
    asked("/v1/queries?in=ads", method="GET")
    asked("/v1/queries/a/results?in=ads", method="GET")
    asked("/v1/queries/a?in=ads", method="DELETE")
    assert [(call[0], call[1]) for call in backend.calls] == [
        ("register", "ads"),
        ("update", "ads"),
        ("queries", "ads"),
        ("results", "ads"),
        ("cancel", "ads"),
    ]


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "", "read-queries"),
        ("GET", "/a", "read-queries"),
        ("GET", "/a/results", "read-queries"),
        ("POST", "", "write-queries"),
        ("PUT", "/a", "write-queries"),
        ("DELETE", "/a", "write-queries"),
    ],
)
def test_a_route_needs_its_scope(make, backend, method, path, scope):
    others = {"write", "metrics", "describe", *BOTH} - {scope}
    asked = make(queries=backend, scopes=tuple(others))
    status, _, document = asked(f"/v1/queries{path}", b"{}", method=method)
    assert (status, document["code"]) == (403, "not-allowed")
    assert scope in document["detail"]
    assert backend.calls == []


def test_a_token_sees_and_changes_the_queries_of_its_topics_alone(make, backend):
    operator = make(queries=backend, scopes=BOTH, topics=("*",))
    asked = make(queries=backend, scopes=BOTH)
    register(operator, "other", id="b")
    assert register(asked, "other", id="c")[0] == 403
    assert asked("/v1/queries", method="GET")[2] == {"queries": []}
    for method, path in (("GET", ""), ("GET", "/results"), ("PUT", ""), ("DELETE", "")):
        status, _, document = asked(f"/v1/queries/b{path}", b"{}", method=method)
        assert (status, document["code"]) == (404, "no-such-query")
    assert list(backend.known) == ["b"]


def test_a_record_that_is_no_query_is_for_tokens_of_all_topics(make, backend):
    backend.known["b"] = backend.known["c"] = routes.KnownQuery("", {"id": "b"})
    assert make(queries=backend, scopes=BOTH)("/v1/queries/b", method="DELETE")[0] == 404
    operator = make(queries=backend, scopes=BOTH, topics=("*",))
    status, _, text = operator("/v1/queries/b", method="DELETE")
    assert (status, text, list(backend.known)) == (204, "", ["c"])


def test_an_update_keeps_the_topic(make, backend):
    asked = make(queries=backend, scopes=BOTH, topics=("*",))
    register(asked, id="a")
    status, _, document = asked("/v1/queries/a", b'{"query": "FROM other"}', method="PUT")
    assert (status, document["code"], document["field"]) == (422, "bad-query", "query")
    assert asked("/v1/queries/a", b'{"id": "b"}', method="PUT")[2]["field"] == "id"
    body = b'{"query": "FROM occurrences 2", "ttl_seconds": 1}'
    assert asked("/v1/queries/a", body, method="PUT")[0] == 200
    assert backend.calls[1:] == [("update", None, "a", "FROM occurrences 2", timedelta(seconds=1))]


def test_a_text_that_is_none_is_refused_with_its_place(asked):
    status, _, document = asked("/v1/queries", b'{"query": "SELECT"}')
    assert (status, document["code"]) == (422, "bad-query-text")
    assert (document["line"], document["column"]) == (1, 1)
    assert "a query begins with FROM" in document["detail"]


def test_an_id_that_is_taken_is_refused_with_the_revision_of_its_query(asked):
    register(asked, id="a")
    status, _, document = register(asked, "occurrences 2", id="a")
    assert (status, document["code"], document["revision"]) == (409, "query-id-taken", 3)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (QueryInvalidError("ttl", "2:00:00", "max_ttl is 1:00:00"), 422, "bad-query"),
        (QueryUnmatchedError("occurrences", "ads", "none"), 422, "query-unmatched"),
        (NotDeclaredError("standing queries", "adz", "ads"), 404, "no-such-registry"),
        (BrokerUnreachableError("secret:9092", "no answer"), 503, "queries-unavailable"),
        (KafkaException(KafkaError(KafkaError._FAIL)), 503, "queries-unavailable"),
    ],
)
def test_an_error_is_a_problem_that_names_no_host(asked, backend, error, status, code):
    backend.error = error
    answer, headers, document = register(asked)
    assert (answer, document["code"]) == (status, code)
    assert "secret" not in document["detail"]
    assert (b"retry-after" in headers) == (status == 503)


def test_an_id_that_is_unknown_is_refused_without_a_hint_to_ids_of_others(asked):
    status, _, document = asked("/v1/queries/a", method="GET")
    assert (status, document["code"]) == (404, "no-such-query")
    assert "secret" not in document["detail"]


def test_while_kafka_is_away_nothing_is_asked_of_it(asked, backend):
    asked.acceptance.kafka_answers = False
    status, headers, document = register(asked)
    assert (status, document["code"]) == (503, "queries-unavailable")
    assert "nothing was done" in document["detail"]
    assert b"retry-after" in headers
    assert backend.calls == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"[]", 400, "bad-query"),
        (b"{", 400, "bad-query"),
        (b'{"query": 1}', 400, "bad-query"),
        (b'{"query": "FROM occurrences", "tll": 1}', 400, "bad-query"),
        (b'{"query": "FROM occurrences", "ttl_seconds": 1e300}', 400, "bad-query"),
        (b'{"query": "\\ud800"}', 400, "bad-query"),
        (b"{}", 422, "bad-query"),
        (b'{"query": "' + b"x" * 140_000 + b'"}', 413, "body-too-large"),
    ],
)
def test_a_body_that_is_no_registration_is_refused(asked, backend, body, status, code):
    answer, _, document = asked("/v1/queries", body)
    assert (answer, document["code"]) == (status, code)
    assert backend.calls == []


def test_an_empty_body_is_refused_with_what_to_send(asked):
    answer, _, document = asked("/v1/queries", b"")
    assert (answer, document["code"]) == (400, "bad-query")
    assert document["detail"] == "the body is empty; send {} to set nothing"


def test_lines_are_no_registration(asked):
    assert asked("/v1/queries", b"{}", content_type="application/x-ndjson")[0] == 415


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "", b"GET, POST"),
        ("POST", "/a", b"GET, PUT, DELETE"),
        ("POST", "/a/results", b"GET"),
    ],
)
def test_another_method_is_refused(asked, method, path, allowed):
    status, headers, _ = asked(f"/v1/queries{path}", method=method)
    assert (status, headers[b"allow"]) == (405, allowed)


@pytest.mark.parametrize("path", ["/a/other", "/a/results/b", "//results", "x"])
def test_other_paths_are_none(asked, path):
    assert asked(f"/v1/queries{path}", method="GET")[2]["code"] == "no-such-path"


def test_a_project_without_standing_queries_has_no_such_path(make):
    asked = make(scopes=BOTH)
    assert asked("/v1/queries", method="GET")[2]["code"] == "no-such-path"


def test_a_request_is_charged_one_event_and_the_bytes_of_its_body(make, backend):
    asked = make(queries=backend, scopes=BOTH, rate=Rate(5, 1000))
    body = b'{"query": "FROM occurrences", "id": "a"}'
    asked("/v1/queries", body)
    asked("/v1/queries", method="GET")
    assert asked.limiter.charges == [
        ("token/abcdefgh-123/events", 1),
        ("token/abcdefgh-123/bytes", len(body)),
        ("token/abcdefgh-123/events", 1),
        ("token/abcdefgh-123/bytes", 0),
    ]
    asked.limiter.wait = 2.5
    assert register(asked)[0] == 429
    assert len(backend.calls) == 2


def test_results_are_an_array_or_lines(asked):
    register(asked, id="a")
    status, headers, document = asked("/v1/queries/a/results?limit=2", method="GET")
    assert (status, headers[b"content-type"]) == (200, b"application/json")
    assert document == {"results": [{"n": 0}, {"n": 1}]}
    assert headers[b"headrace-results-cut"] == b"true"
    _, headers, lines = asked("/v1/queries/a/results", method="GET", accept="application/x-ndjson")
    assert headers[b"content-type"] == b"application/x-ndjson"
    assert lines == '{"n": 0}\n{"n": 1}\n{"n": 2}\n'
    assert b"headrace-results-cut" not in headers


@pytest.mark.parametrize("limit", ["0", "10001", "-1", "x", "", "9" * 5000])
def test_a_limit_is_a_number_of_results(asked, limit):
    register(asked, id="a")
    status, _, document = asked(f"/v1/queries/a/results?limit={limit}", method="GET")
    assert (status, document["field"]) == (422, "limit")


@pytest.mark.parametrize(
    ("parameters", "last", "begin"),
    [
        ("", "", "earliest"),
        ("?from=latest", "", "latest"),
        ("?from=latest", "41", 42),
        ("", "-1", 0),
    ],
)
def test_a_stream_begins_behind_the_last_event_of_its_client(parameters, last, begin):
    assert routes._begin(AddressOf(parameters, last)) == begin


@pytest.mark.parametrize(("parameters", "last"), [("?from=now", ""), ("", "x"), ("", "-2")])
def test_a_stream_begins_nowhere_else(parameters, last):
    with pytest.raises(RefusedRequestError):
        routes._begin(AddressOf(parameters, last))


class AddressOf:
    def __init__(self, parameters, last):
        self.query, self._last = parameters.lstrip("?").encode(), last

    def header(self, name):
        assert name == b"last-event-id"
        return self._last


def test_streams_are_bounded_by_token_and_process(asked, monkeypatch):
    monkeypatch.setattr(routes, "MAX_STREAMS", 3)
    monkeypatch.setattr(routes, "MAX_TOKEN_STREAMS", 2)
    queries, counters = asked.application._queries, asked.application._counters

    def begin(token):
        with queries._stream_of(token) as ended:
            return ended

    def refusal(token):
        with pytest.raises(RefusedRequestError) as raised:
            begin(token)
        return raised.value.problem.status, raised.value.problem.code

    other = type(asked.token)(**{**facts(asked.token), "public_id": "ijklmnop-123"})
    ended = [begin(asked.token), begin(asked.token)]
    assert refusal(asked.token) == (429, "too-many-streams")
    begin(other)
    assert refusal(other) == (503, "overloaded")
    assert counters.totals()[(QUERY_STREAMS,)] == 3
    ended[0]()
    begin(asked.token)
    assert counters.totals()[(QUERY_STREAMS,)] == 3


def facts(token):
    return {name: getattr(token, name) for name in token.__dataclass_fields__}


def test_a_stream_that_does_not_begin_is_not_counted(asked, backend):
    for _ in range(2 * routes.MAX_TOKEN_STREAMS):
        status, _, _ = asked("/v1/queries/a/results", method="GET", accept="text/event-stream")
        assert status == 404
    register(asked, id="a")
    backend.error = BrokerUnreachableError("b", "away")
    for _ in range(2 * routes.MAX_TOKEN_STREAMS):
        status, _, _ = asked("/v1/queries/a/results", method="GET", accept="text/event-stream")
        assert status == 503
    assert asked.application._counters.totals()[(QUERY_STREAMS,)] == 0


def test_requests_that_wait_for_kafka_are_bounded(asked, monkeypatch):
    monkeypatch.setattr(routes.QueryRoutes, "max_waiting", 0)
    status, headers, document = register(asked)
    assert (status, document["code"]) == (503, "overloaded")
    assert b"retry-after" in headers


def test_the_description_has_the_routes_where_there_are_queries(make, backend):
    described = make(queries=backend)("/openapi.json", method="GET")[2]
    operations = {
        operation["operationId"]
        for path, methods in described["paths"].items()
        if path.startswith("/v1/queries")
        for name, operation in methods.items()
        if name != "parameters"
    }
    assert operations == {
        "list-queries",
        "register-query",
        "show-query",
        "update-query",
        "cancel-query",
        "query-results",
    }
    assert "/v1/queries" not in make()("/openapi.json", method="GET")[2]["paths"]


ROTATED = "f" * 64


@pytest.mark.parametrize(
    ("change", "is_allowed"),
    [
        ({}, True),
        ({"name": "another", "expires": NOW + HOUR}, True),
        ({"secret_sha256": ROTATED}, False),
        ({"secret_sha256": ROTATED, "former_until": NOW + HOUR}, True),
        ({"secret_sha256": ROTATED, "former_until": NOW - HOUR}, False),
        ({"expires": NOW - HOUR}, False),
        ({"revoked": NOW}, False),
        ({"kind": TokenKind.PUBLIC}, False),
        ({"scopes": ("write", "write-queries")}, False),
        ({"topics": ("other",)}, False),
        ({"topics": ("*",)}, True),
        (None, False),
    ],
)
def test_a_stream_ends_when_its_request_would_be_refused_now(asked, backend, change, is_allowed):
    register(asked, id="a")
    is_valid = []

    class Cursor:
        """After the first page, the token is another one."""

        position = 0

        def read(self):
            if not is_valid:
                token = asked.token
                if change is not None and "former_until" in change:
                    change["former_sha256"] = token.secret_sha256
                changed = None if change is None else replace(token, **change)
                asked.tokens.get = lambda _: changed
            is_valid.append(True)
            return ResultPage((), 0, is_end=False, is_over=len(is_valid) > 1)

    backend.cursor = lambda *_: Cursor()
    stream(asked, "/v1/queries/a/results")
    assert (len(is_valid) > 1) == is_allowed


def stream(asked, path):
    """Asks for a stream, and returns when it has ended."""
    headers = {"authorization": f"Bearer {asked.text}", "accept": "text/event-stream"}
    scope = {
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }

    async def receive():
        await asyncio.Event().wait()

    async def send(_):
        pass

    asked.runner.run(asked.application(scope, receive, send))
