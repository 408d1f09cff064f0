"""An outage in which everything restarts: the service on what its host knows, without a broker."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import httpx
import pytest
from tests.integration.service import Service, bearer, http
from tests.waiting import wait_for

from headrace.ingest.tokens.token import Token, issue
from headrace.runtime.files.durable_files import replace_file
from headrace.runtime.process_tree import processes

NOBODY = "127.0.0.1:1"
SETTINGS = "deadline_seconds = 1\n"


class Away(Service):
    """A host that knows one token, and every topic but ``derived``, which has a spool as well."""

    def __init__(self, folder) -> None:
        super().__init__(folder, NOBODY, "", SETTINGS)
        flow = folder / "flow.py"
        flow.write_text(flow.read_text().replace("derive_event_id=True", "spool=True"))
        owner = Token("abcdefghijkl", "web", "shop", "acme", ("*",), "", datetime.now(UTC))
        known, self.text = issue(replace(owner, scopes=("write", "metrics")))
        state = self.settings.state / "ingest"
        replace_file(state / "tokens", known.encoded() + b"\n")
        replace_file(state / "topics", json.dumps(["kept", "occurrences"]).encode())

    def is_ready(self) -> bool:
        try:
            return self.readiness("?topic=kept").status_code == 200
        except httpx.TransportError:
            return False

    def readiness(self, query: str = "") -> httpx.Response:
        return http("GET", f"{self.url}/readyz{query}", timeout=5)

    def send(self, topic: str, name: str) -> httpx.Response:
        event = {"event_id": name, "at": datetime.now(UTC).isoformat(), "message": "m"}
        return self.post(topic, self.text, json.dumps(event))


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Away]:
    found = Away(tmp_path_factory.mktemp("away"))
    with found.running() as found.process:
        yield found


def test_topics_with_a_spool_are_taken_and_no_others(service):
    answer = service.send("kept", "first")
    assert (answer.status_code, answer.headers["headrace-spooled"]) == (202, "true")
    for topic in ("occurrences", "derived"):
        refused = service.send(topic, "refused")
        assert (refused.status_code, refused.json()["code"]) == (503, "not-ready")
        assert "nothing of this request was taken" in refused.json()["detail"]


def test_readiness_tells_the_truth_of_each_topic(service):
    whole = service.readiness()
    assert (whole.status_code, whole.json()["code"]) == (503, "not-ready")
    topics = whole.json()["topics"]
    assert (topics["kept"], topics["occurrences"], topics["derived"]) == (
        "spooling", "kafka-away", "kafka-away"
    )  # fmt: skip
    assert service.readiness("?topic=kept").json()["topics"] == {"kept": "spooling"}
    assert service.readiness("?topic=kept&topic=occurrences").status_code == 503
    assert service.readiness("?topic=none").status_code == 404


def test_workers_that_are_killed_meanwhile_know_the_tokens(service):
    before = workers(service.process.pid)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not workers(service.process.pid) & before and service.is_ready())
    answer = service.send("kept", "after")
    assert (answer.status_code, answer.headers["headrace-spooled"]) == (202, "true")
    wrong = http(
        "POST",
        f"{service.url}/v1/topics/kept/events",
        headers=bearer("hr_abcdefghijkl_" + "x" * 32),
    )
    # Kafka may know it: it can be a new one.
    assert (wrong.status_code, wrong.json()["code"]) == (503, "not-ready")


def test_what_waits_is_counted_and_listed(service):
    lines = http("GET", f"{service.url}/metrics", headers=bearer(service.text)).text.splitlines()
    assert 'headrace_ingest_spool_events{topic="kept"} 2' in lines
    assert 'headrace_ingest_unavailable_total{topic="occurrences",code="not-ready"} 1' in lines
    listed = {one["topic"]: one["events"] for one in service.command("spool", "list")["spools"]}
    assert listed == {"derived": 0, "kept": 2}


def workers(parent: int) -> set[int]:
    return {one.pid for one in processes().values() if one.parent == parent}
