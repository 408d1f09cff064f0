"""Envelopes: records that each hold many events of a topic.

Agents collect events and send them as one record. A topic that declares an envelope says how the
events lie in it, and every pipeline that reads the topic gets single events::

    batches = Topic(
        "agent-batches", PageView, envelope=ObjectEnvelope(copied={"account": "agent.account"})
    )
    views = Topic("page-views", PageView, key="account")
    parse = Pipeline("parse", batches, Kafka(views))

Compression: gzip, zstd or none. The record's header ``content-encoding`` (``gzip``, ``zstd`` or
``identity``) says which; without it, the first bytes of the value do.

Order: events of an envelope stay in their order, those of a partition in the order of its records.

Delivery and crashes: as the sink of the pipeline says. An envelope is never divided between two
batches, and a repeated batch gives each of its events the same place: offset and event index.

Bad input: an event that can't be processed becomes a dead letter of its own, with its own bytes and
its event index; the others of its envelope continue. An envelope that can't be divided into events
becomes a dead letter as a whole, with the bytes of the record. Both are written once, also when
their batch is repeated. An array without events is no mistake: it gives nothing.

================== =================================================================================
null-value         no value: a tombstone
unknown-encoding   ``content-encoding`` is neither ``gzip`` nor ``zstd`` nor ``identity``
bad-compression    cut off, damaged, or not what ``content-encoding`` says
envelope-too-large more than ``max_bytes`` bytes once it is decompressed, or once the copied fields
                   are in every event
too-many-events    more than ``max_events`` events
empty              nothing, or nothing but white space, where an array or an object is expected
not-json           malformed or cut off, so that its events can't be separated
too-deep           nested so deep that its events can't be separated
not-an-array       JSON, but no array where the events are expected
not-an-object      JSON, but no object where one is expected
missing-events     an object without the field of its events
================== =================================================================================

What is counted: events. Batches are limited by records (``BatchLimits.max_records``) and by the
decompressed bytes of their events (``BatchLimits.max_bytes``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """How the events of a topic lie in its records; one of the subclasses.

    Attributes:
        max_bytes: of an envelope once it is decompressed.
        max_events: of an envelope.
    """

    max_bytes: int = 32 * 1024 * 1024
    max_events: int = 100_000


@dataclass(frozen=True, kw_only=True)
class ArrayEnvelope(Envelope):
    """Each record value is a JSON array of events."""


@dataclass(frozen=True, kw_only=True)
class LinesEnvelope(Envelope):
    """Each record value has an event on each line; blank lines are none. It may have no line."""


@dataclass(frozen=True, kw_only=True)
class ObjectEnvelope(Envelope):
    """Each record value is a JSON object, with a JSON array of events in one of its fields.

    Attributes:
        events: path of that field, such as ``events`` or ``payload.events``.
        copied: paths of further fields of the object by the field of the event that takes their
            value, such as ``{"host": "agent.host"}``. A field that an event has itself is kept.
            What the object lacks is not copied.
    """

    events: str = "events"
    copied: Mapping[str, str] = field(default_factory=dict)
