"""Standing queries over HTTP: the service as a process, on a real broker."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import httpx
import msgspec
import pytest
from tests.integration.service import (
    FLOW,
    NO_AUTHORITIES,
    Service,
    assert_as_described,
    bearer,
    http,
)
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace import StandingQueries
from headrace.kafka.client.clients import connected_producer
from headrace.queries.records.result import QueryResult, ResultKind
from headrace.queries.topics import ensure_query_topics

QUERIES = """
from headrace import MatchQueries, Pipeline, StandingQueries

ads = StandingQueries("ads{suffix}", partitions=3)
match_occurrences = Pipeline("match", occurrences, MatchQueries(ads))
match_kept = Pipeline("match-kept", kept, MatchQueries(ads))
"""
SCOPES = ("read-queries", "write-queries", "metrics", "describe")
MINUTE = "2026-05-01T10:{:02}:00Z"


class QueryService(Service):
    """A service with standing queries, and what its instances would write."""

    def __init__(self, folder, bootstrap, workers=2):
        suffix = f"-{uuid.uuid4().hex[:6]}"
        super().__init__(folder, bootstrap, suffix, workers=workers)
        (folder / "flow.py").write_text((FLOW + QUERIES).format(suffix=suffix))
        self.declared = StandingQueries(f"ads{suffix}", partitions=3)

    def request(self, method, path="", token=None, **changes):
        headers = bearer(token or self.all) | changes.pop("headers", {})
        return http(method, f"{self.url}/v1/queries{path}", headers=headers, **changes)

    def text(self, topic="occurrences", clauses=""):
        return f'SELECT count(*) FROM "{topic}{self.suffix}" {clauses}'

    def register(self, **members):
        answer = self.request("POST", json={"query": self.text(), **members})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def wait_registering(self, token):
        """Until both workers know a token without the scope of metrics."""
        wait_for(
            lambda: all(self.request("GET", token=token).status_code == 200 for _ in range(20))
        )

    def send_results(self, query, minutes, emission=1):
        """Writes the result of a query for each of these minutes."""
        registered = datetime.fromisoformat(query["registered_at"])
        sender = connected_producer(self.client)
        for minute in minutes:
            result = QueryResult(
                query=query["id"],
                registered=registered.isoformat().replace("+00:00", "Z"),
                revision=query["revision"],
                begin=MINUTE.format(minute),
                end=MINUTE.format(minute + 1),
                emission=emission,
                kind=ResultKind.FINAL,
                facets={},
                is_other=False,
                values={"count(*)": minute},
                events=minute,
            )
            value = msgspec.json.encode(result)
            sender.produce(self.declared.results_topic, value, query["id"])
        assert sender.flush(FLUSH_SECONDS) == 0

    def listed(self, query_id, until):
        """The results of a query, once they are as wanted: a process may know older ones."""
        listed = []

        def are_there():
            listed[:] = self.request("GET", f"/{query_id}/results").json()["results"]
            return until(listed)

        wait_for(are_there, lambda: listed)
        return listed

    @contextlib.contextmanager
    def stream(self, query_id, parameters="", last_event_id="", token=None):
        """The lines of a stream of results."""
        headers = bearer(token or self.all) | {"accept": "text/event-stream"}
        if last_event_id:
            headers["last-event-id"] = last_event_id
        url = f"{self.url}/v1/queries/{query_id}/results{parameters}"
        with httpx.stream(
            "GET", url, verify=NO_AUTHORITIES, headers=headers, timeout=LIMIT_SECONDS
        ) as answer:
            assert answer.status_code == 200
            yield events(answer)


def events(answer) -> Iterator[tuple[str, dict]]:
    """The events of a stream: id and data, as a browser reads them; comments have none."""
    event_id, data = "", None
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            event_id = value
        elif name == "data":
            data = json.loads(value)
        elif not line:
            yield event_id, data
            data = None


def counts(stream, number):
    """So many next results of a stream: their ids and counts."""
    taken = []
    while len(taken) < number:
        event_id, data = next(stream)
        if data is not None:
            taken.append((event_id, data["values"]["count(*)"]))
    return taken


@pytest.fixture(scope="module")
def service(tmp_path_factory, broker):
    service = QueryService(tmp_path_factory.mktemp("queries"), broker.bootstrap_servers)
    service.apply()
    ensure_query_topics(service.client, service.declared)
    with service.running():
        service.all = service.token(scopes=SCOPES)
        yield service


def test_a_query_is_registered_renewed_updated_listed_and_cancelled(service):
    body = {"query": service.text(), "id": "life", "ttl_seconds": 60}
    first = service.request("POST", json=body)
    document = first.json()
    assert (first.status_code, first.headers["location"]) == (201, "/v1/queries/life")
    assert (document["id"], document["revision"], document["state"]) == ("life", 1, "live")
    assert document["topic"] == f"occurrences{service.suffix}"
    again = service.request("POST", json=body)
    assert (again.status_code, again.json()["revision"]) == (200, 1)
    assert again.json()["offset"] > document["offset"]
    changed = service.request(
        "PUT", "/life", json={"query": service.text(clauses="WINDOW 5 minutes")}
    )
    assert (changed.status_code, changed.json()["revision"]) == (200, 2)
    shown = service.request("GET", "/life").json()
    assert shown == changed.json()
    assert shown in service.request("GET").json()["queries"]
    cancelled = service.request("DELETE", "/life")
    assert (cancelled.status_code, cancelled.content) == (204, b"")
    assert "content-length" not in cancelled.headers
    missing = service.request("GET", "/life")
    assert (missing.status_code, missing.json()["code"]) == (404, "no-such-query")


def test_a_random_id_is_made_where_none_is_sent(service):
    assert service.register()["id"] != service.register()["id"]


def test_a_text_that_is_not_valid_is_refused_with_its_place(service):
    text = service.text().replace("count(*)", "sum(nn)")
    answer = service.request("POST", json={"query": text})
    document = answer.json()
    assert (answer.status_code, document["code"]) == (422, "bad-query-text")
    assert (document["line"], document["column"]) == (1, 12)
    assert "did you mean 'n'?" in document["detail"]


def test_an_id_that_is_taken_is_refused(service):
    service.register(id="taken")
    answer = service.request(
        "POST", json={"query": service.text(clauses="WINDOW 5 minutes"), "id": "taken"}
    )
    document = answer.json()
    assert (answer.status_code, document["code"]) == (409, "query-id-taken")
    assert document["revision"] == 1


@pytest.mark.parametrize(
    ("members", "status", "code"),
    [
        ({"id": "no id"}, 422, "bad-query"),
        ({"ttl_seconds": 7200}, 422, "bad-query"),
        ({"ttl_seconds": 0}, 400, "bad-query"),
        ({"tll": 3}, 400, "bad-query"),
        ({"query": None}, 422, "bad-query"),
    ],
)
def test_other_values_are_refused(service, members, status, code):
    answer = service.request("POST", json={"query": service.text(), **members})
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_value_that_is_refused_has_the_name_of_its_member(service):
    members = {"query": service.text(), "ttl_seconds": 7200}
    refused = service.request("POST", json=members).json()
    assert refused["field"] == "ttl_seconds"


def test_a_topic_that_no_pipeline_matches_is_refused(service):
    answer = service.request("POST", json={"query": service.text("small")})
    assert (answer.status_code, answer.json()["code"]) == (422, "query-unmatched")


def test_a_token_is_for_its_scopes_and_the_queries_of_its_topics(service):
    query = service.register(id="scoped")
    topics = [f"kept{service.suffix}"]
    reader = service.token(scopes=("read-queries", "metrics"))
    other = service.token(scopes=SCOPES, topics=topics)
    body = {"query": service.text(), "id": "scoped"}
    assert service.request("POST", token=reader, json=body).status_code == 403
    assert service.request("DELETE", "/scoped", token=reader).status_code == 403
    assert service.request("GET", "/scoped", token=reader).json() == query
    assert service.request("POST", token=other, json=body).json()["code"] == "not-allowed"
    for method, path in (("GET", ""), ("GET", "/results"), ("PUT", ""), ("DELETE", "")):
        body = {"json": {}} if method == "PUT" else {}
        answer = service.request(method, f"/scoped{path}", token=other, **body)
        assert (answer.status_code, answer.json()["code"]) == (404, "no-such-query")
    assert service.request("GET", token=other).json() == {"queries": []}
    kept = service.request("POST", token=other, json={"query": service.text("kept"), "id": "k"})
    assert kept.status_code == 201
    assert service.request("GET", token=other).json() == {"queries": [kept.json()]}
    moved = service.request("PUT", "/k", token=other, json={"query": service.text()})
    assert (moved.status_code, moved.json()["field"]) == (422, "query")
    assert http("GET", f"{service.url}/v1/queries").status_code == 401


def test_results_are_listed_by_the_newest_of_each_group(service):
    query = service.register(id="listed")
    assert service.request("GET", "/listed/results").json() == {"results": []}
    service.send_results(query, range(5))
    service.send_results(query, [3], emission=2)
    results = service.listed(
        "listed", until=lambda listed: listed[3:] and listed[3]["emission"] == 2
    )
    assert [(result["begin"], result["emission"]) for result in results] == [
        (MINUTE.format(minute), 2 if minute == 3 else 1) for minute in range(5)
    ]

    def newest():
        lines = service.request(
            "GET", "/listed/results?limit=2", headers={"accept": "application/x-ndjson"}
        )
        return [json.loads(line) for line in lines.text.splitlines()]

    wait_for(lambda: newest() == results[-2:], newest)


def test_results_of_an_earlier_registration_are_not_shown(service):
    earlier = service.register(id="again")
    service.send_results(earlier, [1])
    service.request("DELETE", "/again")
    later = service.register(id="again")
    assert service.request("GET", "/again/results").json() == {"results": []}
    service.send_results(later, [2])
    with service.stream("again") as stream:
        assert [count for _, count in counts(stream, 1)] == [2]


def test_a_stream_has_each_result_and_resumes_behind_the_last_event(service):
    query = service.register(id="streamed")
    service.send_results(query, [1, 2])
    with service.stream("streamed") as stream:
        first = counts(stream, 2)
        service.send_results(query, [3])
        first += counts(stream, 1)
    assert [count for _, count in first] == [1, 2, 3]
    service.send_results(query, [4, 5])
    with service.stream("streamed", last_event_id=first[1][0]) as stream:
        assert [count for _, count in counts(stream, 3)] == [3, 4, 5]


def test_a_stream_from_the_latest_begins_with_an_id_to_resume_at(service):
    query = service.register(id="latest")
    service.send_results(query, [1])
    with service.stream("latest", "?from=latest") as stream:
        begin, data = next(stream)
        assert data is None
    service.send_results(query, [2])
    with service.stream("latest", last_event_id=begin) as stream:
        assert [count for _, count in counts(stream, 1)] == [2]


def test_a_stream_ends_when_its_id_is_registered_again(service):
    service.register(id="ending")
    with service.stream("ending") as stream:
        next(stream)
        service.request("DELETE", "/ending")
        service.send_results(service.register(id="ending"), [1])
        assert [data for _, data in stream if data] == []


def test_the_examples_of_the_page_are_true(service):
    page = Path(__file__).parents[2].joinpath("docs/queries.md").read_text()
    section = page.partition("\n## Over HTTP\n")[2].partition("\n## ")[0]
    create, register, update, listed, followed = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    topic = f"occurrences{service.suffix}"
    made = service.command(*create.replace("clicks", topic).split()[1:])
    service.wait_registering(made["token"])

    def run(example):
        command = example.replace(":8080", f":{service.port}").replace("curl ", "curl -s -m 5 ")
        command = command.replace("FROM clicks FACET country", f'FROM \\"{topic}\\" FACET message')
        environ = {**os.environ, "TOKEN": made["token"]}
        done = subprocess.run(
            command, shell=True, env=environ, capture_output=True, text=True, check=False
        )
        return done.stdout

    registered = json.loads(run(register))
    updated = json.loads(run(update))
    assert (registered["id"], updated["revision"]) == ("clicks-by-country", 1)
    service.send_results(registered, [1])
    results = []

    def are_listed():
        results[:] = json.loads(run(listed))["results"]
        return results

    wait_for(are_listed)
    assert [result["query"] for result in results] == ["clicks-by-country"]
    stream = run(followed)
    assert re.match(r": heartbeat\nid: -?\d+\n\nid: \d+\ndata: \{", stream)


@pytest.mark.drill
def test_schemathesis_finds_no_violation_of_the_description(service, drill_run):
    paths = ["--include-path-regex", "^/v1/queries"]
    assert_as_described(service, service.all, drill_run, *paths, examples=30)


def test_streams_end_at_the_drain_and_resume_at_the_next_service(tmp_path, broker):
    service = QueryService(tmp_path / "drained", broker.bootstrap_servers, workers=1)
    service.apply()
    ensure_query_topics(service.client, service.declared)
    with service.running() as process:
        service.all = service.token(scopes=SCOPES)
        query = service.register(id="drained")
        service.send_results(query, [1, 2])
        with service.stream("drained") as stream:
            (_, (last, _)) = counts(stream, 2)
            process.send_signal(signal.SIGTERM)
            assert [data for _, data in stream if data] == []
        assert process.wait(LIMIT_SECONDS) == 0
    assert "Killing" not in service.output.read_text()
    service.send_results(query, [3])
    with service.running(), service.stream("drained", last_event_id=last) as stream:
        assert [count for _, count in counts(stream, 1)] == [3]
