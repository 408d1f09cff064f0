"""What must hold for topics whose records are envelopes, and for those that use them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations

from headrace.model import (
    ArrayEnvelope,
    ByKey,
    EventSchema,
    LinesEnvelope,
    ObjectEnvelope,
    Registered,
    Topic,
)
from headrace.model.fault import Fault, at_least, is_a

_FORMS = ArrayEnvelope | LinesEnvelope | ObjectEnvelope
_OF_SINGLE_EVENTS = {"key": None, "derive_event_id": False, "compaction": False, "spool": False}


def envelope_faults(topic: Topic, schema: EventSchema | None) -> Iterator[Fault]:
    """Yields everything wrong with the envelope of a topic.

    Args:
        topic: with or without one.
        schema: of its events; ``None``: they are raw bytes, or faulty.
    """
    envelope, where = topic.envelope, f"topic {topic.name!r}: envelope"
    if envelope is None:
        return
    if not is_a(envelope, _FORMS):
        remedy = "ArrayEnvelope(), LinesEnvelope() or ObjectEnvelope(...)"
        yield Fault(f"{where} is {envelope!r}", remedy)
        return
    yield from at_least(envelope, "max_bytes", 1)
    yield from at_least(envelope, "max_events", 1)
    if isinstance(envelope, ObjectEnvelope):
        yield from _path_faults(where, envelope)
        if schema is not None:
            yield from _copied_faults(where, envelope, schema)
    if isinstance(topic.format, Registered):
        yield Fault(f"{where} of {topic.format} events", "envelopes hold JSON events")
    for attribute, default in _OF_SINGLE_EVENTS.items():
        if getattr(topic, attribute) != default:
            yield Fault(
                f"topic {topic.name!r}: {attribute} is about single events, and its records are "
                "envelopes",
                "declare it for the topic of single events that a pipeline writes",
            )
    if topic.partitioning != ByKey():
        yield Fault(f"topic {topic.name!r}: partitioning is by fields, and envelopes have none")


def no_envelope(topic: Topic, user: str) -> Iterator[Fault]:
    """Yields a fault if the records of a topic are envelopes.

    Args:
        topic: used.
        user: and a verb, such as ``worker 'w' reads``.
    """
    if topic.envelope is not None:
        yield Fault(
            f"{user} topic {topic.name!r}, whose records are envelopes",
            "a pipeline that writes their events to a topic: Pipeline(..., sink=Kafka(...))",
        )


def _path_faults(where: str, envelope: ObjectEnvelope) -> Iterator[Fault]:
    copied = envelope.copied
    if not isinstance(copied, Mapping) or not all(is_a(name, str) for name in copied):
        yield Fault(f"{where}: copied is {copied!r}", 'copied={"host": "agent.host"}')
        return
    paths = [envelope.events, *copied.values()]
    wrong = [path for path in paths if not is_a(path, str) or not all(path.split("."))]
    for path in wrong:
        yield Fault(f"{where}: {path!r} is no path of a field", "such as 'events' or 'agent.host'")
    for outer, inner in permutations(() if wrong else paths, 2):
        if inner == outer or inner.startswith(f"{outer}."):
            yield Fault(f"{where}: {inner!r} is in {outer!r}, and only one of them can be taken")


def _copied_faults(where: str, envelope: ObjectEnvelope, schema: EventSchema) -> Iterator[Fault]:
    for name in envelope.copied:
        if name not in schema.names:
            fields = f"fields: {', '.join(schema.names)}"
            yield Fault(f"{where} copies {name!r}, not a field of {schema.name}", fields)
