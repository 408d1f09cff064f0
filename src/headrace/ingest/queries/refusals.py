"""Turns errors of standing queries into HTTP responses."""

from __future__ import annotations

import logging
from http import HTTPStatus

from headrace.errors import (
    NotDeclaredError,
    QueryIdTakenError,
    QueryInvalidError,
    QueryMissingError,
    QueryTextError,
    QueryUnmatchedError,
)
from headrace.ingest.http.problem import RETRY_AFTER, RefusedRequestError, refused

_LOG = logging.getLogger("headrace.ingest")
_MEMBERS = {"ttl": "ttl_seconds", "topic": "query"}


def refusal(error: Exception) -> RefusedRequestError:
    """Returns the response to a request that raised an error.

    Errors of Kafka are only logged, as they name hosts and users.
    """
    match error:
        case QueryTextError():
            answer = refused(HTTPStatus.UNPROCESSABLE_ENTITY, "bad-query-text", str(error))
            answer.members = {"line": error.line, "column": error.column}
        case QueryInvalidError():
            member = _MEMBERS.get(error.field, error.field)
            answer = bad_query(member, f"{error.field} is {error.value!r}: {error.reason}")
        case QueryUnmatchedError():
            detail = f"no pipeline matches the events of {error.topic!r} with queries"
            answer = refused(HTTPStatus.UNPROCESSABLE_ENTITY, "query-unmatched", detail)
        case QueryIdTakenError():
            detail = f"a live query with another text has the id {error.query!r}"
            answer = refused(HTTPStatus.CONFLICT, "query-id-taken", detail)
            answer.members = {"revision": error.revision}
        case QueryMissingError():
            answer = no_such_query(error.query)
        case NotDeclaredError():
            detail = f"?in={error.name}: declared standing queries are {error.declared}"
            answer = refused(HTTPStatus.NOT_FOUND, "no-such-registry", detail)
        case _:
            _LOG.warning("A request for standing queries was answered with 503: %s", error)
            detail = "Kafka does not answer, or refuses; a change may have been made"
            answer = queries_unavailable(detail)
    return answer


def bad_query(field: str, detail: str) -> RefusedRequestError:
    """Returns the refusal of an invalid value in a request, with the name of its member."""
    answer = refused(HTTPStatus.UNPROCESSABLE_ENTITY, "bad-query", detail)
    answer.members = {"field": field}
    return answer


def no_such_query(query_id: str) -> RefusedRequestError:
    """Returns the refusal of an id; it hides whether another token could see the query."""
    detail = f"no query {query_id[:100]!r} is registered for a topic of this token, or it expired"
    return refused(HTTPStatus.NOT_FOUND, "no-such-query", detail)


def queries_unavailable(detail: str) -> RefusedRequestError:
    """Returns the refusal of a request while Kafka is not available."""
    return refused(HTTPStatus.SERVICE_UNAVAILABLE, "queries-unavailable", detail, RETRY_AFTER)
