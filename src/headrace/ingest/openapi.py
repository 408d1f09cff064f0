"""The service described in OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from headrace.ingest.config import IngestConfig
from headrace.ingest.validation import LONGEST_ID, LONGEST_KEY_BYTES
from headrace.model import EventField, EventSchema, FieldType, Topic

JsonObject = dict[str, Any]

_JSON_SCHEMA: dict[FieldType, JsonObject] = {
    FieldType.STRING: {"type": "string"},
    FieldType.LONG: {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    FieldType.DOUBLE: {"type": "number"},
    FieldType.BOOLEAN: {"type": "boolean"},
    FieldType.TIMESTAMP: {"type": "string", "format": "date-time"},
    FieldType.MILLIS: {"type": "integer", "description": "milliseconds since 1970, UTC"},
}
_PROBLEM: JsonObject = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "description": "stable word for programs"},
        "index": {"type": "integer", "description": "number of the event, from 0"},
        "refused": {"type": "array", "items": {"$ref": "#/components/schemas/Problem"}},
    },
}
_ACCEPTED: JsonObject = {
    "type": "object",
    "required": ["accepted", "refused"],
    "properties": {
        "accepted": {"type": "integer", "description": "events that Kafka has"},
        "refused": {"type": "array", "items": {"$ref": "#/components/schemas/Problem"}},
    },
}
_STATUS: JsonObject = {
    "type": "object",
    "required": ["status"],
    "properties": {"status": {"type": "string"}},
}
_REFUSALS = {
    "400": "nothing of it was accepted; nothing of it will appear",
    "401": "no valid access token",
    "403": "the token may not write to this topic",
    "404": "no such topic",
    "405": "another method",
    "408": "the body did not come in time",
    "413": "too large, or too many events",
    "415": "unknown Content-Type or Content-Encoding",
    "429": "over the rate limit: see Retry-After",
    "431": "the headers are too large",
    "503": "unknown whether the events are there: send them again with the same ids",
}


def openapi(config: IngestConfig) -> JsonObject:
    """The document that ``GET /openapi.json`` answers."""
    paths: JsonObject = {
        "/healthz": {"get": _open_page("The process is alive", _json(_STATUS))},
        "/readyz": {"get": _readiness()},
        "/metrics": {"get": _page("Counts, for Prometheus", _text())},
        "/openapi.json": {"get": _page("This document", _json({"type": "object"}))},
    }
    paths |= {
        f"/v1/topics/{name}/events": {"post": _events(topic)}
        for name, topic in config.topics.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "headrace ingest", "version": "1"},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": _PROBLEM, "Accepted": _ACCEPTED},
        },
    }


def _events(topic: Topic) -> JsonObject:
    event = event_json_schema(topic)
    one_or_many = {"oneOf": [event, {"type": "array", "items": event, "minItems": 1}]}
    return {
        "summary": f"Send events to {topic.name}",
        "operationId": f"send-{topic.name}",
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": one_or_many},
                "application/x-ndjson": {"schema": {"type": "string"}},
            },
        },
        "responses": {
            "202": {
                "description": "all in-sync replicas have the accepted events",
                "content": _json({"$ref": "#/components/schemas/Accepted"}),
            },
            **{status: _problem(text) for status, text in _REFUSALS.items()},
        },
    }


def event_json_schema(topic: Topic) -> JsonObject:
    """JSON Schema of a topic's event."""
    schema = topic.schema or EventSchema(topic.name, ())
    optional = {topic.event_id} if topic.derive_event_id else set()
    return {
        "type": "object",
        "required": [f.name for f in schema.fields if not f.nullable and f.name not in optional],
        "properties": {field.name: _field(field, topic) for field in schema.fields},
    }


def _field(field: EventField, topic: Topic) -> JsonObject:
    found = dict(_JSON_SCHEMA[field.type])
    if field.name == topic.event_id:
        found["pattern"] = f"^[!-~]{{1,{LONGEST_ID}}}$"
    if field.name == topic.key and field.type is FieldType.STRING:
        found |= {"minLength": 1, "description": f"at most {LONGEST_KEY_BYTES} bytes of UTF-8"}
    if field.name == topic.event_time:
        ahead = topic.latest_ahead.total_seconds()
        earliest = topic.earliest_event_time.isoformat()
        found["description"] = f"from {earliest} to {ahead:g} s after the service's clock"
    if field.values:
        found["enum"] = [*field.values, None] if field.nullable else [*field.values]
    if field.nullable:
        found["type"] = [found["type"], "null"]
    return found


def _page(summary: str, content: JsonObject) -> JsonObject:
    return {
        "summary": summary,
        "responses": {
            "200": {"description": summary, "content": content},
            **{status: _problem(_REFUSALS[status]) for status in ("400", "401", "405", "431")},
        },
    }


def _open_page(summary: str, content: JsonObject) -> JsonObject:
    page = _page(summary, content) | {"security": []}
    del page["responses"]["401"]
    return page


def _readiness() -> JsonObject:
    page = _open_page("It can take events", _json(_STATUS))
    page["responses"]["503"] = _problem("it can't take events yet")
    return page


def _problem(description: str) -> JsonObject:
    schema = {"$ref": "#/components/schemas/Problem"}
    content = {"application/problem+json": {"schema": schema}}
    return {"description": description, "content": content}


def _json(schema: JsonObject) -> JsonObject:
    return {"application/json": {"schema": schema}}


def _text() -> JsonObject:
    return {"text/plain": {"schema": {"type": "string"}}}
