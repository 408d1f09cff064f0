"""Describes the routes of standing queries in OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.events.json_schema.schemas import JsonObject
from headrace.ingest.queries.routes import MAX_RESULTS, PREFIX

_QUERY: JsonObject = {
    "type": "object",
    "required": ["id", "state", "offset"],
    "properties": {
        "id": {"type": "string"},
        "state": {"type": "string", "enum": ["live", "expired", "faulty"]},
        "text": {"type": "string"},
        "topic": {"type": "string"},
        "revision": {"type": "integer"},
        "registered_at": {"type": "string", "format": "date-time"},
        "updated_at": {"type": "string", "format": "date-time"},
        "expires_at": {"type": ["string", "null"], "format": "date-time"},
        "offset": {"type": "integer", "description": "of its record in the topic of queries"},
        "reason": {"type": "string", "description": "why it is faulty"},
    },
}
_TTL: JsonObject = {
    "type": ["number", "null"],
    "exclusiveMinimum": 0,
    "description": "seconds that it lives unless it is renewed; by default the longest",
}
_UPDATE: JsonObject = {
    "type": "object",
    "properties": {"query": {"type": ["string", "null"]}, "ttl_seconds": _TTL},
    "additionalProperties": False,
}
_REGISTRATION: JsonObject = {
    "type": "object",
    "required": ["query"],
    "properties": {
        "query": {"type": "string", "description": "its text"},
        "id": {"type": ["string", "null"], "pattern": "^[A-Za-z0-9_-]{1,100}$"},
        "ttl_seconds": _TTL,
    },
    "additionalProperties": False,
}
_IN: JsonObject = {
    "name": "in",
    "in": "query",
    "schema": {"type": "string"},
    "description": "name of the standing queries, where a project declares several",
}
_ID: JsonObject = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
_RESULT_PARAMETERS: tuple[JsonObject, ...] = (
    {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS},
        "description": "of a list",
    },
    {
        "name": "from",
        "in": "query",
        "schema": {"type": "string", "enum": ["earliest", "latest"]},
        "description": "of a stream",
    },
    {
        "name": "Last-Event-ID",
        "in": "header",
        "schema": {"type": "string"},
        "description": "of a stream: the last event that the client has",
    },
)
_STATUSES = ("400", "401", "403", "404", "405", "429", "431", "500", "503")


def query_schemas() -> JsonObject:
    """Returns the OpenAPI schemas of queries, by name."""
    return {"StandingQuery": _QUERY}


def query_paths(refusals: Mapping[str, JsonObject]) -> JsonObject:
    """Returns the OpenAPI paths of standing queries.

    Args:
        refusals: responses to refused requests, by status.
    """
    query = _json({"$ref": "#/components/schemas/StandingQuery"})
    listed = {"type": "array", "items": {"$ref": "#/components/schemas/StandingQuery"}}
    queries = _json({"type": "object", "properties": {"queries": listed}})
    results = {"type": "object", "properties": {"results": {"type": "array"}}}
    shown = {
        **_json(results),
        "application/x-ndjson": {"schema": {"type": "string"}},
        "text/event-stream": {"schema": {"type": "string"}},
    }
    read = {status: refusals[status] for status in _STATUSES}
    changed = read | {status: refusals[status] for status in ("408", "413", "415", "422")}
    registered = {"200": ("renewed", query), "201": ("registered", query)}
    conflict = {"409": refusals["422"] | {"description": "a live query has the id"}}
    return {
        PREFIX: {
            "get": _operation("list-queries", "List queries", {"200": ("queries", queries)}, read),
            "post": _operation(
                "register-query", "Register a query", registered, changed | conflict, _REGISTRATION
            ),
        },
        f"{PREFIX}/{{id}}": {
            "parameters": [_ID],
            "get": _operation("show-query", "Show a query", {"200": ("query", query)}, read),
            "put": _operation(
                "update-query", "Update a query", {"200": ("updated", query)}, changed, _UPDATE
            ),
            "delete": _operation(
                "cancel-query", "Cancel a query", {"204": ("cancelled", {})}, read
            ),
        },
        f"{PREFIX}/{{id}}/results": {
            "parameters": [_ID, *_RESULT_PARAMETERS],
            "get": _operation(
                "query-results",
                "List or follow the results of a query",
                {"200": ("results", shown)},
                read | {"422": refusals["422"]},
            ),
        },
    }


def _operation(
    name: str,
    summary: str,
    answers: Mapping[str, tuple[str, JsonObject]],
    refusals: JsonObject,
    body: JsonObject | None = None,
) -> JsonObject:
    responses = {
        status: {"description": text, "content": content}
        for status, (text, content) in answers.items()
    }
    operation: JsonObject = {
        "summary": summary,
        "operationId": name,
        "parameters": [_IN],
        "responses": responses | refusals,
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _json(body)}
    return operation


def _json(schema: JsonObject) -> JsonObject:
    return {"application/json": {"schema": schema}}
