"""The HTTP service on a real broker, as the processes that users run."""

from __future__ import annotations

import contextlib
import gzip
import hmac
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import zstandard
from tests.integration.service import (
    HEADRACE,
    NO_AUTHORITIES,
    Service,
    assert_as_described,
    bearer,
    http,
)
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.ingest.tokens import operations as tokens
from headrace.ingest.tokens.token import TokenKind
from headrace.settings import Rate

SETTINGS = """
max_body_bytes = 500000
max_events = 100
header_seconds = 5
body_seconds = 5
max_connections = 200
cors_origins = ["https://shop.example.com"]
webhook_key = { file = "webhook.key" }

[ingest.access_log]
format = "json"
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory, broker) -> Iterator[Service]:
    """A service with two workers."""
    folder, suffix = tmp_path_factory.mktemp("service"), f"-{uuid.uuid4().hex[:6]}"
    (folder / "webhook.key").write_text("k" * 32)
    found = Service(folder, broker.bootstrap_servers, suffix, SETTINGS)
    found.apply()
    with found.running():
        yield found


@pytest.fixture(scope="module")
def token(service) -> str:
    return service.token()


def event(**changes) -> dict:
    now = datetime.now(UTC).isoformat()
    return {"event_id": uuid.uuid4().hex, "at": now, "message": "hello"} | changes


def text(**changes) -> bytes:
    return json.dumps(event(**changes)).encode()


def test_an_accepted_event_is_in_the_topic_as_it_came(service, token):
    sent = text(extra={"any": "thing"})
    answer = service.post("occurrences", token, sent)
    assert (answer.status_code, answer.json()) == (202, {"accepted": 1, "rejected": []})
    (record,) = [one for one in service.records("occurrences") if one.value() == sent]
    assert record.key() == b"acme"
    assert dict(record.headers()) == {"account": b"acme", "project": b"shop"}


def test_an_answer_has_the_requests_id_or_a_new_one(service, token):
    assert service.post("occurrences", token, text(), x_request_id="mine-1").headers[
        "x-request-id"
    ] == ("mine-1")
    refused = service.post("occurrences", token, b"", x_request_id="not mine")
    assert re.fullmatch("[0-9a-f]{16}", refused.headers["x-request-id"])


def test_a_page_sends_beacons_with_a_public_key(service):
    _, key = service.credential("occurrences", kind=TokenKind.PUBLIC, rate=Rate(100))
    address = f"{service.url}/v1/topics/occurrences{service.suffix}/events"
    origin = {"origin": "https://shop.example.com"}
    asked = {"access-control-request-method": "POST"}
    preflight = http("OPTIONS", address, headers=origin | asked)
    assert (preflight.status_code, preflight.content) == (200, b"")
    assert preflight.headers["access-control-allow-origin"] == origin["origin"]
    sent, plain = text(), {"content-type": "text/plain;charset=UTF-8"}
    beacon = http("POST", address, params={"key": key}, content=sent, headers=origin | plain)
    assert (beacon.status_code, beacon.json()["accepted"]) == (202, 1)
    assert beacon.headers["access-control-allow-origin"] == origin["origin"]
    assert sent in [record.value() for record in service.records("occurrences")]
    other = http("POST", address, params={"key": key}, content=text(), headers={"origin": "null"})
    assert (other.status_code, other.json()["code"]) == (403, "origin-not-allowed")


def test_a_webhook_is_taken_by_its_signature_also_while_its_secret_is_rotated(service):
    public_id, first = service.credential("pushes", kind=TokenKind.GITHUB)
    _, second = tokens.rotate_token(service.settings, public_id, timedelta(hours=1))
    body = b'{"action":"opened"}'

    def deliver(secret: str) -> httpx.Response:
        digest = hmac.new(secret.encode(), body, "sha256").hexdigest()
        headers = {
            "x-github-delivery": "72d3162e",
            "x-github-event": "issues",
            "x-hub-signature-256": f"sha256={digest}",
        }
        return http("POST", f"{service.url}/v1/webhooks/{public_id}", content=body, headers=headers)

    assert deliver(first).status_code == 202
    wait_for(lambda: deliver(second).status_code == 202)
    assert deliver("hrwh_another").json()["code"] == "no-valid-signature"
    events = [json.loads(record.value()) for record in service.records("pushes")]
    assert len(events) >= 2
    assert all(
        event == {"x_github_delivery": "72d3162e", "x_github_event": "issues", "action": "opened"}
        for event in events
    )


def logged(service, text: str) -> str:
    """The line of the access log with ``text``, which is written after the client's answer."""
    log = service.settings.state / "ingest" / "access.log"
    (line,) = wait_for(
        lambda: [line for line in log.read_text().splitlines() if text in line], log.read_text
    )
    return line


def test_answers_are_in_the_access_log_and_accounts_in_the_metrics(service, token):
    assert service.post("occurrences", token, text(), x_request_id="seen-1").status_code == 202
    line = json.loads(logged(service, '"seen-1"'))
    assert (line["status"], line["account"], line["accepted"]) == (202, "acme", 1)
    metrics = http("GET", f"{service.url}/metrics", headers=bearer(token)).text
    counted = re.search(
        r'headrace_ingest_account_events_total\{account="acme",outcome="accepted"\} (\d+)', metrics
    )
    assert counted is not None
    assert int(counted[1]) > 0


def test_a_service_whose_workers_can_not_start_says_why_and_ends(tmp_path, broker):
    service = Service(tmp_path, broker.bootstrap_servers, f"-{uuid.uuid4().hex[:6]}")
    counts = service.settings.state / "ingest" / "counts"
    counts.parent.mkdir(parents=True)
    counts.write_text("in the way")
    command = [HEADRACE, "ingest", "--workers", "1", "--project", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    lines = service.settings.log.read_text().splitlines()
    why = [line for line in lines if "This worker cannot start" in line]
    assert len(why) == 3
    for line in why:
        assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z ERROR \d+ headrace\.ingest: ", line)
        assert line in done.stderr
    assert len({line.split()[2] for line in why}) == 3  # each is a process of its own
    assert re.search(
        rf"\(file '{re.escape(str(counts))}[^']*'\): \w", done.stderr.replace("\n", "")
    )
    assert not service.is_ready()


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [("identity", bytes), ("gzip", gzip.compress), ("zstd", zstandard.compress)],
)
@pytest.mark.parametrize("lines", [False, True])
def test_batches_come_in_every_form(service, token, encoding, encode, lines):
    events = [event() for _ in range(100)]
    body = "\n".join(map(json.dumps, events)) if lines else json.dumps(events)
    kind = "application/x-ndjson" if lines else "application/json"
    answer = service.post(
        "occurrences", token, encode(body.encode()), content_encoding=encoding, content_type=kind
    )
    assert (answer.status_code, answer.json()["accepted"]) == (202, 100)
    order = [one["event_id"] for one in events]
    mine = set(order)
    assert [found for found in service.ids("occurrences") if found in mine] == order


def test_a_bad_event_costs_only_itself(service, token):
    events = [event() for _ in range(100)]
    events[41]["n"] = "41"
    answer = service.post("occurrences", token, json.dumps(events))
    assert answer.status_code == 202
    assert answer.json()["accepted"] == 99
    (problem,) = answer.json()["rejected"]
    assert (problem["index"], problem["code"]) == (41, "wrong-type")
    assert "'n' is a string, expected an integer" in problem["detail"]
    there = set(service.ids("occurrences"))
    assert [one["event_id"] in there for one in events] == [n != 41 for n in range(100)]


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"", {}, 400, "empty"),
        (b"null", {}, 400, "not-an-object"),
        (b"[]", {}, 400, "empty"),
        (b"{}{}", {}, 400, "trailing-data"),
        (b"\xef\xbb\xbf{}", {}, 400, "byte-order-mark"),
        (b"[" * 400_000, {}, 400, "too-deep"),
        (b'{"a":NaN}', {}, 400, "not-json"),
        (b"[1,2]", {}, 400, "no-event-accepted"),
        (b"{}", {"content_type": "text/html"}, 415, "unknown-content-type"),
        (b"{}", {"content_encoding": "br"}, 415, "unknown-encoding"),
        (b"{}", {"content_encoding": "gzip"}, 400, "undecodable-body"),
        (b" " * 500_001, {}, 413, "body-too-large"),
        (
            gzip.compress(b" " * 9_000_000),
            {"content_encoding": "gzip"},
            413,
            "decoded-body-too-large",
        ),
        (b"[" + b"1," * 100 + b"1]", {}, 413, "too-many-events"),
        (b"{}", {"x_long": "a" * 20_000}, 431, "headers-too-large"),
    ],
)
def test_a_bad_request_is_a_problem_with_a_name(service, token, body, headers, status, code):
    answer = service.post("occurrences", token, body, **headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"


def test_what_is_too_large_for_its_topic_is_refused_and_counted(service, token):
    answer = service.post("small", token, text(message="x" * 4000))
    assert (answer.status_code, answer.json()["code"]) == (413, "event-too-large")
    metrics = http("GET", f"{service.url}/metrics", headers=bearer(token)).text
    line = f'rejections_total{{topic="small{service.suffix}",code="event-too-large"}} 1'
    assert f"headrace_ingest_{line}\n" in metrics
    waiting = f'\nheadrace_ingest_spool_events{{topic="kept{service.suffix}"}} 0\n'
    assert metrics.count(waiting) == 1
    assert service.post("small", token, text(message="x" * 2500)).status_code == 202


def test_an_event_above_a_megabyte_is_taken_where_three_limits_allow_it(tmp_path, broker):
    """Two of the service and one of the topic: the clients of headrace need no setting."""
    limits = "max_body_bytes = 6000000\nmax_string_bytes = 5000000\n"
    large = Service(tmp_path, broker.bootstrap_servers, f"-{uuid.uuid4().hex[:6]}", limits)
    with (tmp_path / "flow.py").open("a") as flow:
        config = '{"max.message.bytes": "6000000"}'
        flow.write(f'large = Topic("large{large.suffix}", event=Occurrence, config={config})\n')
    large.apply()
    sent = text(message=os.urandom(2_000_000).hex())
    with large.running():
        token = large.token()
        assert large.post("large", token, sent).json() == {"accepted": 1, "rejected": []}
        assert [record.value() for record in large.records("large")] == [sent]
        refused = large.post("occurrences", token, sent)
    assert (refused.status_code, refused.json()["code"]) == (413, "event-too-large")
    assert "(max.message.bytes of the topic)" in refused.json()["detail"]


def test_an_event_that_is_too_large_is_refused_with_the_name_of_the_setting(service, token):
    sent = text(message="x" * 4_000_000)
    refused = service.post("occurrences", token, sent)
    assert (refused.status_code, refused.json()["code"]) == (413, "body-too-large")
    assert "500000 bytes (ingest.max_body_bytes)" in refused.json()["detail"]
    zipped = zstandard.compress(sent)
    refused = service.post("occurrences", token, zipped, content_encoding="zstd")
    assert (refused.status_code, refused.json()["code"]) == (413, "decoded-body-too-large")
    assert "10000000 bytes (ingest.max_decoded_bytes), or than 100" in refused.json()["detail"]
    refused = service.post("occurrences", token, text(message=os.urandom(35_000).hex()))
    assert (refused.status_code, refused.json()["code"]) == (400, "text-too-long")
    assert "expected at most 65536 (ingest.max_string_bytes)" in refused.json()["detail"]


def test_many_events_fit_into_a_topic_whose_batches_must_be_small(service, token):
    events = [event(message=uuid.uuid4().hex * 20) for _ in range(50)]
    answer = service.post("small", token, json.dumps(events))
    assert (answer.status_code, answer.json()["accepted"]) == (202, 50)
    assert {one["event_id"] for one in events} <= set(service.ids("small"))


def test_a_field_places_an_event_where_the_client_would_place_it_as_a_key(service, token):
    body = json.dumps([event(message=f"user {number}") for number in range(100)])
    for topic in ("keyed", "placed"):
        assert service.post(topic, token, body).json()["accepted"] == 100
    keyed, placed = (
        {json.loads(one.value())["message"]: one.partition() for one in service.records(topic)}
        for topic in ("keyed", "placed")
    )
    assert keyed == placed
    assert len(set(keyed.values())) == 7


def test_a_derived_id_is_the_same_when_the_event_comes_again(service, token):
    sent = json.dumps({"at": "2026-05-01T00:00:00Z", "message": "no id"})
    assert [service.post("derived", token, sent).status_code for _ in "ab"] == [202, 202]
    first, second = service.ids("derived")
    assert first == second


@pytest.mark.parametrize("path", ["/metrics", "/openapi.json", "/v1/topics/x/events", "/", "/docs"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_nothing_but_the_probes_answers_without_a_token(service, path, method):
    for value in ("", "Bearer", "Bearer hr_x_y", "Basic eDp5"):
        answer = http(method, service.url + path, headers={"authorization": value})
        assert (answer.status_code, answer.json()["code"]) == (401, "no-valid-token")
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_what_there_is_not_is_said(service, token):
    assert service.post("nothing", token, text()).json()["code"] == "no-such-topic"
    assert service.post("raw", token, text()).json()["code"] == "no-such-topic"
    there = http("GET", service.url + "/other", headers=bearer(token))
    assert (there.status_code, there.json()["code"]) == (404, "no-such-path")
    events = f"{service.url}/v1/topics/occurrences{service.suffix}/events"
    answer = http("GET", events, headers=bearer(token))
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_a_token_is_good_for_its_topics_and_until_it_ends(service, token):
    text_of = service.token(topics=[f"occurrences{service.suffix}"])
    assert service.post("occurrences", text_of, text()).status_code == 202
    assert service.post("derived", text_of, text()).json()["code"] == "not-allowed"
    public_id = text_of.split("_")[1]
    _, fresh = tokens.rotate_token(service.settings, public_id)
    service.wait_known(text_of, known=False)
    service.wait_known(fresh)
    service.command("tokens", "revoke", public_id)
    service.wait_known(fresh, known=False)
    assert service.post("occurrences", fresh, text()).status_code == 401
    expired = tokens.TokenSpec("old", "shop", "acme", lifetime=timedelta(microseconds=1))
    _, old = tokens.create_token(service.settings, expired)
    listed = service.command("tokens", "list")["tokens"]
    assert {one["state"] for one in listed} == {"active", "revoked", "expired"}
    assert service.post("occurrences", token, text()).status_code == 202
    assert service.post("occurrences", old, text()).status_code == 401
    kept = json.dumps(listed) + service.output.read_text()
    assert fresh.split("_", 2)[2] not in kept


def test_a_limit_is_shared_by_the_workers(service):
    # So low that a machine of which others use most meets the limit, too.
    limited = service.token(rate=Rate(events_per_second=10))
    began = time.monotonic()
    admitted, refused = 0, []
    while time.monotonic() < began + 6:
        answer = service.post("derived", limited, json.dumps([event() for _ in range(25)]))
        if answer.status_code == 202:
            admitted += 25
        else:
            refused.append(answer)
    elapsed = time.monotonic() - began
    assert refused, f"{admitted} events were admitted in {elapsed:.1f} s"
    assert {(one.status_code, one.json()["code"]) for one in refused} == {(429, "rate-limited")}
    assert all(int(one.headers["retry-after"]) >= 1 for one in refused)
    assert 10 * (elapsed - 2) - 25 <= admitted <= 10 * (elapsed + 1) + 25


def _talk(port: int, *parts: bytes | float) -> bytes:
    """What comes back until the other side closes; numbers are pauses."""
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_SECONDS) as connection:
        for part in parts:
            if isinstance(part, bytes):
                connection.sendall(part)
            else:
                time.sleep(part)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
        return answer


def test_the_http_server_answers_what_it_cannot_parse_by_itself(service):
    start = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"
    requests = {
        b"400": start + b"a: \x01\r\n\r\n",
        b"431": start + b"a: 1\r\n" * 100 + b"\r\n",
    }
    answers = {status: _talk(service.port, request) for status, request in requests.items()}
    assert {status: answer.split()[1] for status, answer in answers.items()} == {
        status: status for status in requests
    }
    assert not [answer for answer in answers.values() if b"x-request-id" in answer.lower()]


def test_slow_clients_are_closed_and_others_do_not_notice(service, token):
    head = (
        f"POST /v1/topics/occurrences{service.suffix}/events HTTP/1.1\r\nhost: x\r\n"
        f"authorization: Bearer {token}\r\n"
    ).encode()
    talks = {
        "silent": (),
        "slow header": (b"POST /v1",),
        "slow body": (head + b"content-length: 10\r\n\r\n{",),
        "slow chunks": (head + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n",),
    }
    answers: dict[str, bytes] = {}
    threads = [
        threading.Thread(
            target=lambda n=name, p=parts: answers.update({n: _talk(service.port, *p)})
        )
        for name, parts in talks.items()
        for _ in range(20)
    ]
    for one in threads:
        one.start()
    assert service.post("occurrences", token, text()).status_code == 202
    for one in threads:
        one.join()
    assert answers["silent"] == answers["slow header"] == b""
    assert answers["slow body"].startswith(b"HTTP/1.1 408")
    assert answers["slow chunks"].startswith(b"HTTP/1.1 408")


def _sockets(workers: list[int]) -> int:
    """Open in both workers: connections, and some that are always there."""
    files = (file for pid in workers for file in Path(f"/proc/{pid}/fd").iterdir())
    return sum(map(_is_socket, files))


def _is_socket(file: Path) -> bool:
    try:
        return str(file.readlink()).startswith("socket:")
    except FileNotFoundError:  # closed meanwhile
        return False


def test_connections_beyond_the_limit_wait_and_those_within_it_do_not_notice(service, token):
    url = f"{service.url}/v1/topics/occurrences{service.suffix}/events"
    workers = wait_for(lambda: _both_workers(service))
    with (
        httpx.Client(verify=NO_AUTHORITIES, headers=bearer(token), timeout=LIMIT_SECONDS) as within,
        contextlib.ExitStack() as open_,
    ):
        assert within.post(url, json=event()).status_code == 202
        connection, before, most = within._transport._pool.connections[0], _sockets(workers), 0
        silent = [open_.enter_context(socket.socket()) for _ in range(500)]
        for one in silent:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", service.port))
        for _ in range(50):
            assert within.post(url, json=event()).status_code == 202
            most = max(most, _sockets(workers) - before)
        assert 100 < most < 220
        assert within._transport._pool.connections == [connection]
        beyond = service.post("occurrences", token, text())
    assert beyond.status_code == 202


@pytest.mark.parametrize(
    "fields",
    [
        b"content-length: 2\r\ncontent-length: 3\r\n",
        b"x: a\rb\r\ncontent-length: 2\r\n",
        b"content-length: two\r\n",
        b"transfer-encoding: gzip\r\n",
    ],
)
def test_a_request_that_can_be_read_in_two_ways_is_refused(service, token, fields):
    head = b"POST /v1/topics/x/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
    answer = _talk(service.port, head + token.encode() + b"\r\n" + fields + b"\r\n{}")
    assert answer.startswith(b"HTTP/1.1 400")


def test_a_length_beside_chunks_ends_the_connection(service, token):
    head = b"POST /v1/topics/x/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
    both = b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    answer = _talk(service.port, head + token.encode() + b"\r\n" + both + b"GET / HTTP/1.1\r\n\r\n")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "chunks",
    [
        b"zz\r\n{}\r\n0\r\n\r\n",
        b"1;" + b"a" * 20_000 + b"\r\n{\r\n0\r\n\r\n",
        b"2\r\n{}XX0\r\n\r\n",
        b"-1\r\n{}\r\n0\r\n\r\n",
        b"ffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        b"1\r\n{\r\nzz\r\n",
    ],
    ids=["size", "extension", "length", "negative", "overflow", "later"],
)
def test_chunks_that_can_not_be_read_are_a_problem_of_the_request(service, token, chunks):
    head = (
        f"POST /v1/topics/occurrences{service.suffix}/events HTTP/1.1\r\nhost: x\r\n"
        f"authorization: Bearer {token}\r\ncontent-type: application/json\r\n"
        "transfer-encoding: chunked\r\n\r\n"
    ).encode()
    answer = _talk(service.port, head + chunks)
    assert answer.startswith(b"HTTP/1.1 400")
    headers, _, body = answer.partition(b"\r\n\r\n")
    assert b"x-request-id: " in headers.lower()
    assert json.loads(body)["code"] == "undecodable-body"


def test_a_worker_that_is_killed_is_replaced_and_what_it_accepted_is_there(service, token):
    accepted = []
    for _ in range(3):
        worker, _ = wait_for(lambda: _both_workers(service))
        accepted += _sent_until_killed(service, token, worker)
        service.wait_known(token)
    there = set(service.ids("occurrences"))
    assert set(accepted) <= there


def _both_workers(service: Service) -> list[int]:
    """The two workers; none while one that was killed is not replaced yet."""
    (main,) = _pids("-f", f"headrace ingest --project {service.folder}")
    workers = _pids("-P", str(main), "-f", "spawn_main")
    return workers if len(workers) == 2 else []


def _pids(*pattern: str) -> list[int]:
    done = subprocess.run(["pgrep", *pattern], capture_output=True, text=True, check=True)
    return [int(pid) for pid in done.stdout.split()]


def _sent_until_killed(service: Service, token: str, worker: int) -> list[str]:
    accepted: list[str] = []
    killed_at = 30
    for number in range(2 * killed_at):
        if number == killed_at:
            os.kill(worker, signal.SIGKILL)
        one = event()
        while True:
            try:
                answer = service.post("occurrences", token, json.dumps(one))
            except httpx.TransportError:
                continue
            if answer.status_code == 202:
                accepted.append(one["event_id"])
                break
            assert answer.status_code == 503
    return accepted


def _snippets(name: str) -> list[str]:
    page = Path(__file__).parents[2].joinpath("docs/reference/ingest.md").read_text()
    return re.findall(rf"```{name}\n(.*?)```", page, re.DOTALL)


def test_the_snippets_of_the_reference_send_events(tmp_path, broker):
    project = Service(tmp_path, broker.bootstrap_servers, "", workers=1)
    (tmp_path / "flow.py").unlink()
    text_of = (tmp_path / "headrace.toml").read_text()
    (tmp_path / "headrace.toml").unlink()
    subprocess.run([HEADRACE, "init", tmp_path], check=True, capture_output=True)
    (tmp_path / "headrace.toml").write_text(text_of)
    project.apply()
    with project.running():
        environ = {**os.environ, "TOKEN": project.token()}
        (curl,) = [one for one in _snippets("sh") if one.startswith("curl")]
        (python,) = [one for one in _snippets("python") if "urllib" in one]
        for command in (["sh", "-c", curl], [sys.executable, "-c", python]):
            here = [one.replace(":8080", f":{project.port}") for one in command]
            done = subprocess.run(here, env=environ, capture_output=True, text=True, check=True)
            assert done.stdout.strip() in ('{"accepted":1,"rejected":[]}', "100")
    assert len(project.records("page-views")) == 101


@pytest.mark.drill
def test_schemathesis_finds_no_failure_and_no_violation_of_the_description(
    service, token, drill_run
):
    before = len(service.records("derived"))
    assert_as_described(service, token, drill_run, examples=60)
    assert len(service.records("derived")) > before


def test_up_starts_the_service_and_down_ends_it(tmp_path, broker):
    suffix = f"-{uuid.uuid4().hex[:6]}"
    project = Service(tmp_path, broker.bootstrap_servers, suffix, workers=1)
    project.apply()
    try:
        (server,) = project.command("up")["servers"]
        assert (server["name"], server["address"]) == ("ingest", project.url)
        assert project.command("up")["servers"] == [server]
        assert project.post("occurrences", project.token(), text()).status_code == 202
    finally:
        (server,) = project.command("down")["servers"]
    assert server["running"] is False
    assert project.is_ready() is False
