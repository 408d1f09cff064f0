"""Problem documents (RFC 9457): why a request is refused or an event rejected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

PROBLEM_JSON = b"application/problem+json"
RETRY_AFTER = (b"retry-after", b"1")
CLOSE = (b"connection", b"close")
REQUEST_CODES = (
    "byte-order-mark", "undecodable-body", "repeated-header", "unknown-transfer-encoding",
    "no-event-accepted", "no-valid-token", "no-valid-signature", "not-allowed",
    "origin-not-allowed", "no-such-topic", "no-such-path", "method-not-allowed", "body-too-slow",
    "body-too-large", "decoded-body-too-large", "too-many-events", "unknown-content-type",
    "unknown-encoding", "rate-limited", "headers-too-large", "unknown-outcome", "batch-rejected",
    "overloaded", "topic-missing", "spool-full", "spool-failed", "not-ready", "internal",
    "spreads-unknown",
    "bad-query", "bad-query-text", "query-unmatched", "query-id-taken", "no-such-query",
    "no-such-registry", "too-many-streams", "queries-unavailable",
)  # fmt: skip
"""Codes of refused requests; docs/reference/ingest.md says when each is given."""
MAX_DETAIL_CHARACTERS = 500
"""Characters of a detail that are shown; what a client sent is not sent back to it in full."""


@dataclass(frozen=True, slots=True)
class ProblemDetails:
    """Why a request is refused, or an event rejected.

    Attributes:
        status: HTTP status of a request that is refused for this alone.
        code: stable word for programs; listed in docs/reference/ingest.md.
        detail: a sentence that names the field, what it holds and what was expected.
        index: number of the event in its request, from 0; ``None`` for the whole request.
    """

    status: HTTPStatus
    code: str
    detail: str
    index: int | None = None

    def document(self) -> dict[str, Any]:
        """Returns the problem as RFC 9457 has it; ``code`` and ``index`` are extension members."""
        members: dict[str, Any] = {
            "type": f"urn:headrace:problem:{self.code}",
            "title": self.code.replace("-", " "),
            "status": self.status.value,
            "detail": self.detail[:MAX_DETAIL_CHARACTERS],
            "code": self.code,
        }
        return members if self.index is None else members | {"index": self.index}


@dataclass(eq=False)
class RefusedRequestError(Exception):
    """The request as a whole is refused.

    Attributes:
        problem: why.
        headers: to answer with, such as Retry-After.
        rejected: problems of single events, when that is why.
        members: further members of the document, such as the line of a query.
    """

    problem: ProblemDetails
    headers: tuple[tuple[bytes, bytes], ...] = ()
    rejected: list[ProblemDetails] = field(default_factory=list)
    members: Mapping[str, Any] = field(default_factory=dict)


def refused(
    status: HTTPStatus, code: str, detail: str, *headers: tuple[bytes, bytes]
) -> RefusedRequestError:
    """Returns the error that refuses a request."""
    return RefusedRequestError(ProblemDetails(status, code, detail), headers)
