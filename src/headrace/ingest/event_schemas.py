"""JSON Schemas of events, as named components of an OpenAPI document.

Each class has a component of its own, so that a generator makes a model of each. Where a class is
not described alike everywhere (the id of one topic is a field of it, that of another is not), the
others have the name of their topic in theirs.

``msgspec.json.schema_components`` describes a class, and knows no topic: limits of the id, the key
and the time, values, and names by topic would be patched into its output, by paths that it lacks.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from headrace.events.json_schema.schemas import JSON_TYPES, JsonObject
from headrace.ingest.events.validation import MAX_ID_CHARACTERS, MAX_KEY_BYTES
from headrace.model import EventField, EventSchema, FieldType, Topic


class EventComponents:
    """The components of some topics' events.

    Args:
        topics: with an event class.
        others: components that the document has besides; no event gets their names.

    Attributes:
        schemas: all components, by name.
    """

    def __init__(self, topics: Sequence[Topic], others: Mapping[str, JsonObject]) -> None:
        self._events = _event_names(topics, others)
        # Names of events are taken before those of the classes that they nest.
        self.schemas: JsonObject = {name: {} for name in self._events.values()} | dict(others)
        schemas = [(topic, topic.schema) for topic in topics if topic.schema is not None]
        # An event that another one nests comes first, so that the other one can refer to it.
        for topic, schema in sorted(schemas, key=lambda pair: _depth(pair[1])):
            self.schemas[self._events[topic.name]] = self._object(schema, topic, "")

    def event(self, topic: Topic) -> JsonObject:
        """Returns a reference to the schema of a topic's event."""
        return _reference(self._events[topic.name])

    def _object(self, schema: EventSchema, topic: Topic, prefix: str) -> JsonObject:
        optional = {topic.event_id} if topic.derive_event_id else set()
        return {
            "type": "object",
            "required": [
                field.name
                for field in schema.fields
                if not field.nullable and prefix + field.name not in optional
            ],
            "properties": {
                field.name: self._field(field, topic, prefix + field.name)
                for field in schema.fields
            },
        }

    def _field(self, field: EventField, topic: Topic, path: str) -> JsonObject:
        described = self._value(field, topic, path)
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
        return _or_null(described) if field.nullable else described

    def _value(self, field: EventField, topic: Topic, path: str) -> JsonObject:
        if field.schema is not None:
            return self._nested(field.schema, topic, f"{path}.")
        if field.element is None:
            return dict(JSON_TYPES[field.type])
        held = self._field(field.element, topic, f"{path}[]")
        if field.type is FieldType.MAP:
            return {"type": "object", "additionalProperties": held}
        return {"type": "array", "items": held}

    def _nested(self, schema: EventSchema, topic: Topic, prefix: str) -> JsonObject:
        described = self._object(schema, topic, prefix)
        numbered = (f"{schema.name}.{topic.name}.{number}" for number in itertools.count(2))
        # The best name first: the class may be described otherwise for another topic.
        names = itertools.chain((schema.name, f"{schema.name}.{topic.name}"), numbered)
        name = next(name for name in names if self.schemas.setdefault(name, described) == described)
        return _reference(name)


def _event_names(topics: Iterable[Topic], others: Iterable[str]) -> Mapping[str, str]:
    """Returns a name for each topic's event: that of its class, if no other topic has that class.

    What an event may be depends on its topic too: which field is the id, the key, the time.
    """
    classes = {topic.name: topic.schema.name for topic in topics if topic.schema is not None}
    count = Counter([*classes.values(), *others])
    return {
        topic: name if count[name] == 1 else f"{name}.{topic}" for topic, name in classes.items()
    }


def _depth(schema: EventSchema) -> int:
    return 1 + max((_depth(nested) for nested in _nested_schemas(schema)), default=0)


def _nested_schemas(schema: EventSchema) -> Iterator[EventSchema]:
    for field in schema.fields:
        inner = field
        while inner.element is not None:
            inner = inner.element
        if inner.schema is not None:
            yield inner.schema


def _reference(name: str) -> JsonObject:
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(described: JsonObject) -> JsonObject:
    if "$ref" in described:
        return {"anyOf": [described, {"type": "null"}]}
    if "type" in described:
        types = described["type"]
        described["type"] = [*([types] if isinstance(types, str) else types), "null"]
    return described
