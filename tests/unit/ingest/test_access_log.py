"""The access log: a line for each answer, and no request fails for it."""

import json

import pytest
from tests.unit.ingest.application import event

from headrace.ingest.access_log import LINES, AccessLog
from headrace.ingest.application import ACCESS_LOG
from headrace.ingest.http.request import Request
from headrace.settings import IngestSettings

JSON = IngestSettings(access_log="json")


@pytest.fixture
def lines(tmp_path):
    """Reads the access log."""
    return lambda: (tmp_path / ACCESS_LOG).read_text().splitlines()


def test_there_is_none_unless_it_is_asked_for(make, tmp_path):
    assert make().post(event())[0] == 202
    assert not (tmp_path / ACCESS_LOG).exists()


def test_a_line_says_who_sent_what_and_what_became_of_it(make, lines):
    asked = make(JSON)
    body = b"[" + event(1) + b',{"event_id":7},' + event(2) + b"]"
    headers = {"x_request_id": "mine", "x_forwarded_for": "198.51.100.9", "user_agent": "curl/8"}
    assert asked.post(body, **headers)[0] == 202
    (line,) = map(json.loads, lines())
    assert line.pop("milliseconds") >= 0
    assert line.pop("time").endswith("Z")
    assert line == {
        "request_id": "mine",
        "method": "POST",
        "path": "/v1/topics/occurrences/events",
        "status": 202,
        "received_bytes": len(body),
        "accepted": 2,
        "rejected": 1,
        "topic": "occurrences",
        "peer": "10.0.0.7",
        "forwarded_for": "198.51.100.9",
        "user_agent": "curl/8",
        "token": "abcdefgh-123",
        "account": "acme",
    }


def test_refusals_and_failures_have_lines_too(make, lines):
    asked = make(JSON)
    asked("/readyz", method="GET", authorization="")
    asked.post(b"no json")
    asked("/nothing?key=hrpub_abcdefgh-123_xyz", authorization="")
    asked.acceptance.error = ZeroDivisionError()
    asked.post(event())
    found = [json.loads(line) for line in lines()]
    assert [line["status"] for line in found] == [200, 400, 401, 500]
    assert ["token" in line for line in found] == [False, True, False, True]
    assert "hrpub_" not in "".join(lines())


def test_values_of_clients_are_cut_and_stay_in_their_line(make, lines):
    asked = make(IngestSettings(access_log="text"))
    asked.post(event(), user_agent='a "b"\tc=d ' + "x" * 500)
    asked("/" + "p" * 1000, method="GET")
    first, second = lines()
    assert 'user_agent="a \\"b\\"\\tc=d xxx' in first
    assert " status=202 " in first
    assert " account=acme" in first
    assert max(map(len, (first, second))) < 800


def answered(request_id="r"):
    scope = {"method": "GET", "path": "/", "query_string": b"", "client": None}
    return Request(scope | {"headers": [(b"x-request-id", request_id.encode())]}, None)


def test_of_each_kind_of_answer_so_many_lines_a_second_are_written(tmp_path):
    now = [1000.0]
    log = AccessLog(tmp_path / "log", LINES["json"], 2, lambda: now[0])
    for status in (401, 401, 401, 202, 404, 503):
        log.write(answered(), status, 0)
    now[0] = 1001.5
    for status in (401, 401, 401, 202):
        log.write(answered(), status, 0)
    now[0] = 1002.0
    log.write(answered(), 400, 0)
    log.close()
    found = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(line["status"], line.get("left_out")) for line in found] == [
        (401, None),
        (401, None),
        (202, None),
        (503, None),
        (401, 2),
        (401, None),
        (202, None),
        (400, 1),
    ]


def test_a_file_that_is_renamed_is_made_anew(tmp_path):
    log = AccessLog(tmp_path / "log", LINES["json"], 10)
    log.write(answered("first"), 200, 0)
    (tmp_path / "log").rename(tmp_path / "log.1")
    log.write(answered("second"), 200, 0)
    log.close()
    assert "second" in (tmp_path / "log").read_text()
    assert "first" in (tmp_path / "log.1").read_text()


def test_a_line_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    log = AccessLog(tmp_path / "missing" / "log", LINES["json"], 10)
    log.write(answered(), 200, 0)
    log.close()
    assert "Cannot write to the access log" in caplog.text
