"""The service described in OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.events.json_schema.schemas import JsonObject
from headrace.ingest.event_schemas import EventComponents
from headrace.ingest.figures.service_metrics import EVENT_CODES
from headrace.ingest.http.problem import REQUEST_CODES
from headrace.ingest.queries.description import query_paths, query_schemas
from headrace.model import Topic
from headrace.settings import IngestSettings

_PROBLEM: JsonObject = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string", "description": "the request: its X-Request-Id is the end"},
        "code": {
            "type": "string",
            "enum": [*REQUEST_CODES, *EVENT_CODES],
            "description": "stable word for programs",
        },
        "index": {
            "type": "integer",
            "description": "number of the event, from 0; of lines, blank ones don't count",
        },
        "rejected": {"type": "array", "items": {"$ref": "#/components/schemas/Problem"}},
        "line": {"type": "integer", "description": "of the text of a query, from 1"},
        "column": {"type": "integer", "description": "of the text of a query, from 1"},
        "field": {"type": "string", "description": "member of the request that is refused"},
        "revision": {"type": "integer", "description": "of the query that has the id"},
    },
}
_ACCEPTED: JsonObject = {
    "type": "object",
    "required": ["accepted", "rejected"],
    "properties": {
        "accepted": {"type": "integer", "description": "events that Kafka has, or the disk"},
        "rejected": {"type": "array", "items": {"$ref": "#/components/schemas/Problem"}},
    },
}
_STATUS: JsonObject = {
    "type": "object",
    "required": ["status"],
    "properties": {"status": {"type": "string"}},
}
_REFUSALS = {
    "400": "nothing of it was accepted, and nothing of it will appear",
    "401": "no valid access token, public key or signature",
    "403": "the token has not the scope, is not for this topic, or not for pages of this origin",
    "404": "no such topic",
    "405": "another method",
    "408": "the body did not come in time",
    "413": "too large, or too many events",
    "415": "unknown Content-Type or Content-Encoding",
    "422": "Kafka will never take the event: do not send it again",
    "429": "over the rate limit: see Retry-After",
    "431": "the headers are too large",
    "500": "a defect; unknown whether the events are there: send them again with the same ids",
    "503": "unknown whether the events are there: send them again with the same ids",
}


_RETRY_AFTER: JsonObject = {
    "Retry-After": {"schema": {"type": "integer"}, "description": "seconds to wait"}
}
_SPOOLED: JsonObject = {
    "Headrace-Spooled": {
        "schema": {"const": "true"},
        "description": "some of the events are on this host's disk, and will be sent to Kafka",
    }
}
_ENCODING: JsonObject = {
    "name": "Content-Encoding",
    "in": "header",
    "schema": {"type": "string", "enum": ["", "identity", "gzip", "zstd"]},
}


_SECURITY: JsonObject = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "a private token (hr_...) or a public key (hrpub_...)",
    },
    "publicKey": {
        "type": "apiKey",
        "in": "query",
        "name": "key",
        "description": "a public key (hrpub_...), for pages of the allowed origins",
    },
}
_SIGNATURE: JsonObject = {
    "type": "apiKey",
    "in": "header",
    "name": "X-Hub-Signature-256",
    "description": "sha256= and the HMAC-SHA256 of the body with the webhook's secret, as GitHub's",
}


def openapi(
    topics: Sequence[Topic], settings: IngestSettings, *, has_queries: bool = False
) -> JsonObject:
    """Returns the document that ``GET /openapi.json`` answers, with these topics."""
    schemas = {"Problem": _PROBLEM, "Accepted": _ACCEPTED}
    if has_queries:
        schemas |= query_schemas()
    components = EventComponents(topics, schemas)
    max_events = settings.max_events
    text = {"text/plain": {"schema": {"type": "string"}}}
    paths: JsonObject = {
        "/healthz": {"get": _open_page("health", "The process is alive", _json(_STATUS))},
        "/readyz": {"get": _readiness(topics)},
        "/metrics": {"get": _page("metrics", "Counts, for Prometheus", text)},
        "/openapi.json": {"get": _page("describe", "This document", _json({"type": "object"}))},
    }
    for topic in topics:
        event = components.event(topic)
        paths[f"/v1/topics/{topic.name}/events"] = {"post": _events(topic, event, max_events)}
    if has_queries:
        paths |= query_paths({status: _problem(text) for status, text in _REFUSALS.items()})
    security = dict(_SECURITY)
    if settings.webhook_key is not None:
        paths["/v1/webhooks/{id}"] = {"post": _webhook()}
        security["webhookSignature"] = _SIGNATURE
    return {
        "openapi": "3.1.0",
        "info": {"title": "headrace ingest", "version": "1"},
        "servers": [{"url": settings.public_url or "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {"securitySchemes": security, "schemas": components.schemas},
    }


def _events(topic: Topic, event: JsonObject, max_events: int) -> JsonObject:
    # What is beyond maxItems is said to be a 400; ours is the 413 of all that is too much.
    array = {
        "type": "array",
        "items": event,
        "minItems": 1,
        "description": f"at most {max_events} events",
    }
    return {
        "summary": f"Send events to {topic.name}",
        "operationId": f"send-{topic.name}",
        "security": [{"token": []}, {"publicKey": []}],
        "parameters": [_ENCODING],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": {"oneOf": [event, array]}},
                "application/x-ndjson": {"schema": {"type": "string"}},
                "text/plain": {
                    "schema": {"type": "string"},
                    "description": "read as application/json; browsers need no preflight for it",
                },
            },
        },
        "responses": {"202": _accepted(), **_refusals()},
    }


def _webhook() -> JsonObject:
    """Returns the operation of all webhooks; which topic an event goes to is the webhook's."""
    tried = {
        "description": "a ping, which is stored nowhere",
        "content": _json({"$ref": "#/components/schemas/Accepted"}),
    }
    return {
        "summary": "Deliver an event by a webhook, such as GitHub's",
        "operationId": "deliver-webhook",
        "security": [{"webhookSignature": []}],
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "X-GitHub-Event", "in": "header", "schema": {"type": "string"}},
            {"name": "X-GitHub-Delivery", "in": "header", "schema": {"type": "string"}},
        ],
        "requestBody": {"required": True, "content": _json({"type": "object"})},
        "responses": {"200": tried, "202": _accepted(), **_refusals()},
    }


def _accepted() -> JsonObject:
    return {
        "description": "all in-sync replicas have the accepted events",
        "headers": _SPOOLED,
        "content": _json({"$ref": "#/components/schemas/Accepted"}),
    }


def _refusals() -> JsonObject:
    refusals = {status: _problem(text) for status, text in _REFUSALS.items()}
    for status in ("429", "503"):
        refusals[status]["headers"] = _RETRY_AFTER
    return refusals


def _page(operation: str, summary: str, content: JsonObject) -> JsonObject:
    statuses = ("400", "401", "403", "405", "431", "500", "503")
    return {
        "summary": summary,
        "operationId": operation,
        "responses": {
            "200": {"description": summary, "content": content},
            **{status: _problem(_REFUSALS[status]) for status in statuses},
        },
    }


def _open_page(operation: str, summary: str, content: JsonObject) -> JsonObject:
    page = _page(operation, summary, content) | {"security": []}
    for status in ("401", "403", "503"):
        del page["responses"][status]
    return page


def _readiness(topics: Sequence[Topic]) -> JsonObject:
    page = _open_page("readiness", "It can take events", _json(_STATUS))
    names = {"type": "array", "items": {"enum": [topic.name for topic in topics]}}
    page["parameters"] = [
        {"name": "topic", "in": "query", "schema": names, "description": "all, if none is named"}
    ]
    page["responses"]["404"] = _problem(_REFUSALS["404"])
    page["responses"]["503"] = _problem("events of a topic can't be taken now")
    return page


def _problem(description: str) -> JsonObject:
    schema = {"$ref": "#/components/schemas/Problem"}
    content = {"application/problem+json": {"schema": schema}}
    return {"description": description, "content": content}


def _json(schema: JsonObject) -> JsonObject:
    return {"application/json": {"schema": schema}}
