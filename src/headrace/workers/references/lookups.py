"""How schemas of registered events in references are looked up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.events.avro.values import SchemaLookup
    from headrace.events.protobuf.values import ProtobufLookup


@dataclass(frozen=True)
class EventLookups:
    """Looks up the schemas of events of registered formats; picklable.

    Attributes:
        avro: schemas of Avro, by id; ``None``: there is no schema registry.
        protobuf: those of Protobuf.
    """

    avro: SchemaLookup | None = None
    protobuf: ProtobufLookup | None = None
