"""What answers of a cluster have in them. What has another form, something else has answered.

Decoders are made here, before threads decode.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec


class Acknowledged(msgspec.Struct):
    """Whether the cluster has put something on all its nodes."""

    acknowledged: bool


class _Uuids(msgspec.Struct):
    uuid: str


class _IndexSettings(msgspec.Struct):
    uuid: str
    history: _Uuids | None = None


class _Settings(msgspec.Struct):
    index: _IndexSettings


class _WithSettings(msgspec.Struct):
    settings: _Settings


class _WithMappings(msgspec.Struct):
    mappings: dict[str, Any]


class _IndexName(msgspec.Struct):
    index_name: str


class _DataStream(msgspec.Struct):
    indices: Annotated[list[_IndexName], msgspec.Meta(min_length=1)]


class DataStreams(msgspec.Struct):
    """Data streams with their indices; the last one is written to."""

    data_streams: list[_DataStream]


class _NamedTemplate(msgspec.Struct):
    name: str
    index_template: dict[str, Any]


class IndexTemplates(msgspec.Struct):
    """Index templates."""

    index_templates: list[_NamedTemplate]


class RecordedPositions(msgspec.Struct):
    """The content of a document of positions."""

    versions: dict[str, int]
    writer: str | None = None
    index_uuids: str | None = None


class StoredPositions(msgspec.Struct):
    """A document of positions, and its place in the order of writes."""

    source: RecordedPositions = msgspec.field(name="_source")
    seq_no: int = msgspec.field(name="_seq_no")
    primary_term: int = msgspec.field(name="_primary_term")


class WrittenDocument(msgspec.Struct):
    """A document was written."""

    result: Literal["created", "updated"]


ACKNOWLEDGED = msgspec.json.Decoder(Acknowledged)
SETTINGS = msgspec.json.Decoder(dict[str, _WithSettings])
"""Settings by index."""
MAPPINGS = msgspec.json.Decoder(dict[str, _WithMappings])
"""Mappings by index."""
DATA_STREAMS = msgspec.json.Decoder(DataStreams)
TEMPLATES = msgspec.json.Decoder(IndexTemplates)
POSITIONS = msgspec.json.Decoder(StoredPositions)
WRITTEN = msgspec.json.Decoder(WrittenDocument)
