"""A client as a customer's program has one: standard library, and sends again while unsure."""

from __future__ import annotations

import gzip
import http.client
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from traffic import Event, Project

PATH = "/v1/topics/occurrences/events"
ANSWER_SECONDS = 30.0
PATIENCE_SECONDS = 60.0
NEW_TOKEN_SECONDS = 10.0
NOW_NOT = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
)


@dataclass(frozen=True)
class Answer:
    """What the service said."""

    status: int
    retry_after: int
    document: dict[str, Any]


@dataclass
class Client:
    """Sends with one token; a new one is known to every worker within seconds.

    Attributes:
        address: of the service, such as ``http://127.0.0.1:8317``.
        project: whose occurrences it sends.
        token: the access token's text.
        accepted: ids that were answered with 202.
        rejected: the verdicts on the others.
        waits: seconds waited after each 429.
    """

    address: str
    project: Project
    token: str
    accepted: set[str] = field(default_factory=set)
    rejected: list[dict[str, Any]] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)

    def send(self, events: Sequence[Event], *, compress: bool = False) -> None:
        """Sends a batch until the answer says what became of it.

        Raises:
            RuntimeError: nothing of it was taken, or no answer came within a minute.
        """
        give_up = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < give_up:
            answer = self.post(events, compress=compress)
            if answer.status == HTTPStatus.ACCEPTED:
                return self._count(events, answer)
            if answer.status not in NOW_NOT and not self._is_too_new(answer, give_up):
                raise RuntimeError(f"{answer.status}: {answer.document}")
            if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
                self.waits.append(answer.retry_after)
            time.sleep(answer.retry_after)
        raise RuntimeError(f"no 202 within {PATIENCE_SECONDS:.0f} s")

    def post(self, events: Sequence[Event], *, compress: bool = False) -> Answer:
        """One request, one answer; no answer is a 503."""
        body, headers = json.dumps(events).encode(), {"Content-Type": "application/json"}
        if compress:
            body, headers = gzip.compress(body), headers | {"Content-Encoding": "gzip"}
        try:
            status, retry_after, text = self._request("POST", PATH, body, headers)
        except (OSError, http.client.HTTPException) as error:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, 1, {"detail": str(error)})
        return Answer(status, retry_after, json.loads(text))

    def metric(self, name: str) -> float:
        """A figure of the service, added up over its labels."""
        _, _, text = self._request("GET", "/metrics", b"", {})
        lines = (line.rpartition(" ") for line in text.decode().splitlines())
        values = [float(value) for label, _, value in lines if label.partition("{")[0] == name]
        if not values:
            raise RuntimeError(f"the service has no metric {name}")
        return sum(values)

    def _request(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, int, bytes]:
        address = urlsplit(self.address).netloc
        connection = http.client.HTTPConnection(address, timeout=ANSWER_SECONDS)
        try:
            headers = {"Authorization": f"Bearer {self.token}"} | headers
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            retry_after = int(response.headers.get("Retry-After", 1))
            return response.status, retry_after, response.read()
        finally:
            connection.close()

    def _count(self, events: Sequence[Event], answer: Answer) -> None:
        bad = {verdict["index"] for verdict in answer.document["rejected"]}
        self.rejected += answer.document["rejected"]
        self.accepted |= {event["uuid"] for i, event in enumerate(events) if i not in bad}

    def _is_too_new(self, answer: Answer, give_up: float) -> bool:
        young = time.monotonic() < give_up - PATIENCE_SECONDS + NEW_TOKEN_SECONDS
        return answer.status == HTTPStatus.UNAUTHORIZED and young
