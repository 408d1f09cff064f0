"""A sample is written more than once: how its records stay events that were not there before.

A table without duplicates, or the step ``deduplicate``, would drop all but the first of them, and
nothing would be measured but dropping.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from headrace.kafka.admin.measuring import SampledRecord
from headrace.model import FieldType, Json, Topic
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.transforms.deduplicate import deduplicate
from headrace.sinks.lake.declaration import Lake
from headrace.topics.rules import schema_of

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def distinct_by(pipeline: Pipeline) -> Iterator[tuple[str, Sequence[str]]]:
    """Yields what drops duplicates, and the columns in which they are equal."""
    sink = pipeline.sink
    if isinstance(sink, Lake) and sink.unique is not None:
        yield "Lake.unique", sink.unique.by
    for step in pipeline.steps:
        if isinstance(step, deduplicate):
            yield "deduplicate", step.by


def varied_field(pipeline: Pipeline, by: Sequence[str]) -> str | None:
    """Returns a column of ``by`` that can differ in each repetition; None: there is none."""
    topics = [source.topic for source in pipeline.sources]
    names = (name for name in by if all(_can_vary(topic, name) for topic in topics))
    return next(names, None)


def _can_vary(topic: Topic, name: str) -> bool:
    schema = schema_of(topic)
    if schema is None or name not in schema.names or not isinstance(topic.record_format, Json):
        return False
    if topic.envelope is not None or (topic.derive_event_id and topic.event_id == name):
        return False
    field = schema.field(name)
    return field.type is FieldType.LONG or (field.type is FieldType.STRING and not field.values)


@dataclass(frozen=True)
class Repetition:
    """Makes other events of the records of a sample, which differ in some fields.

    Attributes:
        spans: of fields with whole numbers: how far apart the repetitions of a number are, so that
            no number of the sample is among them.
    """

    fields: tuple[str, ...]
    spans: dict[str, int]

    @classmethod
    def of(cls, fields: Sequence[str], records: Sequence[SampledRecord]) -> Repetition:
        """Returns the repetition of a sample."""
        numbers: dict[str, list[int]] = {}
        for record in records:
            event = _fields(record.value)
            for name in fields:
                value = None if event is None else _value(event, name)
                if type(value) is int:
                    numbers.setdefault(name, []).append(value)
        spans = {name: max(values) - min(values) + 1 for name, values in numbers.items()}
        return cls(tuple(fields), spans)

    def __call__(self, record: SampledRecord, number: int) -> SampledRecord:
        """Returns a record as it is for the repetition ``number``, which is 0 at first."""
        event = _fields(record.value) if number else None
        if event is None:
            return record
        key = record.key
        for name in self.fields:
            value = _value(event, name)
            if isinstance(value, str):
                varied: str | int = f"{value}~{number}"
            elif type(value) is int:
                varied = value + number * self.spans[name]
            else:
                continue
            event[name] = msgspec.Raw(msgspec.json.encode(varied))
            if key == str(value).encode():
                key = str(varied).encode()
        return replace(record, value=msgspec.json.encode(event), key=key)


def _fields(value: bytes) -> dict[str, msgspec.Raw] | None:
    try:
        return _FIELDS.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # a record that is rejected anyway


def _value(event: dict[str, msgspec.Raw], name: str) -> object:
    try:
        return msgspec.json.decode(event[name]) if name in event else None
    except msgspec.DecodeError:
        return None
