"""Events of a drill: those of a sample, again and again, each time with an id of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headrace.errors import DrillError
from headrace.ingest.events.validation import Accepted
from headrace.ingest.http.problem import ProblemDetails
from headrace.ingest.producing.event_producer import TopicCheck
from headrace.kafka.admin.measuring import SampledRecord
from headrace.model import EventField, FieldType, Topic
from headrace.operations.measuring.sample import ACCOUNT
from headrace.settings import Settings
from headrace.topics.rules import schema_of

_ID = re.compile(rb"drill-(\d+)-(\d{9})")


@dataclass(frozen=True, order=True)
class EventName:
    """An event of the drill.

    Attributes:
        topic: number of the topic that it was sent to, among those that get events.
        number: of the event, from 0.
    """

    topic: int
    number: int

    def __str__(self) -> str:
        return f"drill-{self.topic}-{self.number:09}"


def names_in(*contents: bytes | None) -> set[EventName]:
    """Returns the events whose ids are in a record's parts, whatever its format is."""
    return {
        EventName(int(topic), int(number))
        for content in contents
        if content
        for topic, number in _ID.findall(content)
    }


def id_field(topic: Topic) -> str | None:
    """Returns the field that names an event: the declared id, else the key; None: neither can."""
    schema = schema_of(topic)
    if schema is None:
        return None
    declared = (
        path for path in (topic.event_id, topic.key) if path and _is_free(schema.find(path))
    )
    return next(declared, None)


def _is_free(field: EventField | None) -> bool:
    return field is not None and field.type is FieldType.STRING and not field.values


class TopicEvents:
    """Makes the events of one topic.

    Args:
        number: of the topic, in the ids of its events.
        topic: as declared.
        settings: of the drill.
        sample: events of it.

    Attributes:
        period: the event of a number is made of the same one of the sample as that which has this
            number more. It is a prime where it can be, so that what befalls each hundredth record
            befalls another event of the sample each time.
    """

    def __init__(
        self, number: int, topic: Topic, settings: Settings, sample: Sequence[SampledRecord]
    ) -> None:
        self.number, self.topic = number, topic
        self.period = _prime_below(len(sample))
        self._check = TopicCheck(topic, settings, ACCOUNT)
        self._sample = [_document(topic, record) for record in sample[: self.period]]
        self._id_path = (id_field(topic) or "").split(".")
        self._time_path = topic.event_time.split(".") if topic.event_time else []
        schema = schema_of(topic)
        declared = schema.find(topic.event_time) if schema and topic.event_time else None
        self._is_millis = declared is not None and declared.type is FieldType.MILLIS

    def event(self, number: int, now: float) -> Accepted:
        """Returns the record of an event that happens now.

        Args:
            number: of the event.
            now: seconds since 1970.

        Raises:
            DrillError: if the topic does not take it.
        """
        document = self._sample[number % self.period]
        _put(document, self._id_path, str(EventName(self.number, number)))
        if self._time_path:
            _put(document, self._time_path, self._time(now))
        record = self._check(json.dumps(document, ensure_ascii=False).encode())
        if isinstance(record, ProblemDetails):
            raise DrillError(f"topic {self.topic.name!r}: {record.code}: {record.detail}")
        return record

    def _time(self, now: float) -> int | str:
        if self._is_millis:
            return int(now * 1000)
        return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")


def _document(topic: Topic, record: SampledRecord) -> dict[str, Any]:
    try:
        document = json.loads(record.value)
    except ValueError as error:
        raise DrillError(f"topic {topic.name!r}: a record of its sample is no JSON") from error
    if not isinstance(document, dict):
        raise DrillError(f"topic {topic.name!r}: a record of its sample is no JSON object")
    return document


def _put(document: dict[str, Any], path: Sequence[str], value: object) -> None:
    *parents, name = path
    for parent in parents:
        inside = document.get(parent)
        if not isinstance(inside, dict):
            inside = document[parent] = {}
        document = inside
    document[name] = value


def _prime_below(count: int) -> int:
    return next((number for number in range(count, 1, -1) if _is_prime(number)), 1)


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, int(number**0.5) + 1))


Samples = Mapping[str, Sequence[SampledRecord]]
"""Records by the names of their topics."""
