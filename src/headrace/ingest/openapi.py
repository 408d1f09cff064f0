"""The service described in OpenAPI 3.1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.ingest.events.validation import MAX_ID_CHARACTERS, MAX_KEY_BYTES
from headrace.ingest.figures.service_metrics import EVENT_CODES
from headrace.ingest.http.problem import REQUEST_CODES
from headrace.model import EventField, EventSchema, FieldType, Topic
from headrace.settings import IngestSettings

JsonObject = dict[str, Any]

DECIMAL_PATTERN = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"

_JSON_SCHEMA: dict[FieldType, JsonObject] = {
    FieldType.STRING: {"type": "string"},
    FieldType.LONG: {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    FieldType.DOUBLE: {"type": "number"},
    FieldType.BOOLEAN: {"type": "boolean"},
    FieldType.TIMESTAMP: {"type": "string", "format": "date-time"},
    FieldType.MILLIS: {"type": "integer", "description": "milliseconds since 1970, UTC"},
    FieldType.DATE: {"type": "string", "format": "date"},
    FieldType.DECIMAL: {"type": ["number", "string"], "pattern": DECIMAL_PATTERN},
    FieldType.BINARY: {"type": "string", "contentEncoding": "base64"},
    FieldType.JSON: {},
}
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
    "400": "nothing of it was accepted; nothing of it will appear",
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


def openapi(topics: Sequence[Topic], settings: IngestSettings) -> JsonObject:
    """Returns the document that ``GET /openapi.json`` answers, with these topics."""
    schemas = _schema_names(topics)
    max_events = settings.max_events
    paths: JsonObject = {
        "/healthz": {"get": _open_page("health", "The process is alive", _json(_STATUS))},
        "/readyz": {"get": _readiness(topics)},
        "/metrics": {"get": _page("metrics", "Counts, for Prometheus", _text())},
        "/openapi.json": {"get": _page("describe", "This document", _json({"type": "object"}))},
    }
    for topic in topics:
        reference = {"$ref": f"#/components/schemas/{schemas[topic.name]}"}
        paths[f"/v1/topics/{topic.name}/events"] = {"post": _events(topic, reference, max_events)}
    security = dict(_SECURITY)
    if settings.webhook_key is not None:
        paths["/v1/webhooks/{id}"] = {"post": _webhook()}
        security["webhookSignature"] = _SIGNATURE
    events = {schemas[topic.name]: event_json_schema(topic) for topic in topics}
    return {
        "openapi": "3.1.0",
        "info": {"title": "headrace ingest", "version": "1"},
        "servers": [{"url": settings.public_url or "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": security,
            "schemas": {**events, "Problem": _PROBLEM, "Accepted": _ACCEPTED},
        },
    }


def _schema_names(topics: Iterable[Topic]) -> Mapping[str, str]:
    """A name for each topic's event: that of its class, where no other topic has one like it.

    What an event may be depends on its topic too: which field is the id, the key, the time.
    """
    classes = {topic.name: topic.schema.name for topic in topics if topic.schema is not None}
    count = Counter([*classes.values(), "Problem", "Accepted"])
    return {
        topic: name if count[name] == 1 else f"{name}.{topic}" for topic, name in classes.items()
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


def event_json_schema(topic: Topic) -> JsonObject:
    """JSON Schema of a topic's event."""
    return _object(topic.schema or EventSchema(topic.name, ()), topic, "")


def _object(schema: EventSchema, topic: Topic, prefix: str) -> JsonObject:
    optional = {topic.event_id} if topic.derive_event_id else set()
    return {
        "type": "object",
        "required": [
            field.name
            for field in schema.fields
            if not field.nullable and prefix + field.name not in optional
        ],
        "properties": {
            field.name: _field(field, topic, prefix + field.name) for field in schema.fields
        },
    }


def _field(field: EventField, topic: Topic, path: str) -> JsonObject:
    described = _value(field, topic, path)
    if path == topic.event_id:
        described["pattern"] = f"^[!-~]{{1,{MAX_ID_CHARACTERS}}}$"
    if path == topic.key and field.type is FieldType.STRING:
        described |= {"minLength": 1, "description": f"at most {MAX_KEY_BYTES} bytes of UTF-8"}
    if path == topic.event_time:
        ahead = topic.latest_ahead.total_seconds()
        earliest = topic.earliest_event_time.isoformat()
        described["description"] = f"from {earliest} to {ahead:g} s after the service's clock"
    if field.values:
        described["enum"] = [*field.values, None] if field.nullable else [*field.values]
    if field.nullable and "type" in described:
        kinds = described["type"]
        described["type"] = [*([kinds] if isinstance(kinds, str) else kinds), "null"]
    return described


def _value(field: EventField, topic: Topic, path: str) -> JsonObject:
    if field.schema is not None:
        return _object(field.schema, topic, f"{path}.") | {"title": field.schema.name}
    if field.element is None:
        return dict(_JSON_SCHEMA[field.type])
    held = _field(field.element, topic, f"{path}[]")
    if field.type is FieldType.MAP:
        return {"type": "object", "additionalProperties": held}
    return {"type": "array", "items": held}


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
    asked = {"type": "array", "items": {"enum": [topic.name for topic in topics]}}
    page["parameters"] = [
        {"name": "topic", "in": "query", "schema": asked, "description": "all, if none is named"}
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


def _text() -> JsonObject:
    return {"text/plain": {"schema": {"type": "string"}}}
