"""Events that tasks send as objects: the topic's declaration says how they are written."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.errors import EventRejectedError, InvalidRecordError
from headrace.events import (
    ReadableCheck,
    Rejection,
    event_parser,
    microseconds,
    out_of_bounds,
    rejection,
)
from headrace.events.parsing.event_json import event_text
from headrace.model import EventSchema, FieldType, Json, Topic, value_at
from headrace.model.fault import is_a
from headrace.workers.tasks.task import Headers, Send

if TYPE_CHECKING:
    from headrace.project.loaded import LoadedProject

_VALUES = bytes | str | bytearray | memoryview | None


def event_topics(project: LoadedProject) -> tuple[Topic, ...]:
    """Returns the topics of a project, as tasks may send events to all of them."""
    return tuple(project.topics.values())


def encoding(send: Send, topics: Collection[Topic], sent_to: set[str] | None = None) -> Send:
    """Returns what sends events as the declaration of their topic says, and other values as before.

    An event has the key that its topic declares, unless one is named.

    Args:
        send: sends values.
        topics: those whose events are known.
        sent_to: gets the names of topics that something is sent to.
    """
    declared = {topic.name: topic for topic in topics}
    events: dict[str, _SentEvents] = {}
    names: set[str] = set() if sent_to is None else sent_to

    def encoded(
        topic: str,
        value: object,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int = -1,
    ) -> Awaitable[None]:
        if topic not in names and is_a(topic, str):
            names.add(topic)
        if not isinstance(value, _VALUES):
            if topic not in events:
                events[topic] = _sent_events(topic, declared.get(topic), value)
            value, own_key = events[topic].record_of(value)
            key = own_key if key is None else key
        return send(topic, value, key=key, headers=headers, partition=partition)

    return encoded


@dataclass(frozen=True)
class _SentEvents:
    """Makes records of the events of one topic, and rejects those that readers would reject."""

    topic: Topic
    schema: EventSchema
    parse: Callable[[bytes], Any]
    is_readable: ReadableCheck

    def record_of(self, event: object) -> tuple[bytes, bytes | None]:
        """Returns the value and the key of a record.

        Raises:
            EventRejectedError: if it is no event of its topic.
            TypeError: if it has no fields.
        """
        topic = self.topic
        try:
            text = event_text(topic, event)
        except InvalidRecordError as error:
            raise EventRejectedError(topic.name, error.reason, error.detail) from error
        if (why := self._rejection(text)) is not None:
            raise EventRejectedError(topic.name, *why)
        if topic.key is None and topic.event_time is None:
            return text, None
        members = msgspec.json.decode(text)
        key = None if topic.key is None else value_at(members, topic.key)
        if topic.key is not None and key is None:
            detail = f"field {topic.key!r} is null, and is the key"
            raise EventRejectedError(topic.name, "bad-key", detail)
        if (late := self._out_of_bounds(members)) is not None:
            raise EventRejectedError(topic.name, *late)
        return text, None if key is None else str(key).encode()

    def _rejection(self, text: bytes) -> Rejection | None:
        try:
            event = self.parse(text)
        except (ValueError, TypeError, RecursionError) as error:
            return rejection(text, self.schema, error)
        return None if self.is_readable(event) else rejection(text, self.schema)

    def _out_of_bounds(self, members: dict[str, Any]) -> Rejection | None:
        name = self.topic.event_time
        value = None if name is None else members.get(name)
        if name is None or value is None:
            return None
        is_millis = self.schema.field(name).type is FieldType.MILLIS
        time_us = value * 1000 if is_millis else microseconds(value)
        if time_us is None:
            return None
        earliest_us, latest_us = self.topic.event_time_bounds(time.time())
        if earliest_us <= time_us <= latest_us:
            return None
        return out_of_bounds(name, time_us, earliest_us, latest_us)


def _sent_events(name: object, topic: Topic | None, value: object) -> _SentEvents:
    """Returns what makes records of the events of a topic.

    Raises:
        TypeError: if nothing says how they are written. It does not show the event.
    """
    kind = type(value).__name__
    if not is_a(name, str):
        raise TypeError(f"the topic is {name!r}, and must be text")
    if topic is None or topic.schema is None:
        why = "not declared in the project" if topic is None else "declared without an event class"
        raise TypeError(
            f"topic {name!r} is {why}, so nothing says how an instance of {kind} is written: "
            f"declare Topic({name!r}, event={kind}), or send bytes or text"
        )
    if not isinstance(topic.record_format, Json):
        raise TypeError(
            f"topic {name!r} is {type(topic.record_format).__name__}, which `send` does not write: "
            f"send the bytes of the {kind}, with the id of its schema"
        )
    return _SentEvents(topic, topic.schema, event_parser(topic.schema), ReadableCheck(topic.schema))
