"""Formats: how the values of a topic's records hold its events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias
from uuid import UUID


@dataclass(frozen=True)
class Json:
    """Each record value is one JSON object with the fields of the topic's event class.

    JSON is read strictly: a value of another type than the field's is rejected, never converted.
    """


@dataclass(frozen=True)
class Raw:
    """Record values stay bytes, in one column ``value`` (binary); no record is rejected.

    A null value (a tombstone) stays null, an empty one stays empty. Such a topic has no event
    class.
    """


@dataclass(frozen=True)
class Avro:
    """Each record value is an Avro value after the id of its schema: Confluent's wire format.

    The schema registry of the project (``[schema_registry]`` of headrace.toml) knows the schema
    that a record was written with; the event class is the reader's schema. Needs the extra
    ``headrace[avro]``. An event class of such a topic has no field of type ``Any``.
    """

    extra: ClassVar[str] = "avro"
    registry_kind: ClassVar[str] = "AVRO"


@dataclass(frozen=True)
class JsonSchema:
    """Each record value is JSON after the id of its schema: Confluent's wire format.

    The event class says what is read, as for :class:`Json`; ``headrace plan`` compares it with the
    JSON Schema that the schema registry of the project has. What is sent has the id of the schema
    of the event class. Needs the extra ``headrace[jsonschema]``.
    """

    extra: ClassVar[str] = "jsonschema"
    registry_kind: ClassVar[str] = "JSON"


@dataclass(frozen=True)
class Protobuf:
    """Each record value is a message of Protobuf after the id of its schema and its place in that.

    The schema registry of the project knows the schema; the event class is compared with its
    message by the names of fields. Needs the extra ``headrace[protobuf]``. An event class of such a
    topic has no field of type ``Any``, and its lists and maps can't be null.
    """

    extra: ClassVar[str] = "protobuf"
    registry_kind: ClassVar[str] = "PROTOBUF"


Registered: TypeAlias = Avro | JsonSchema | Protobuf
"""Formats whose records name a schema of the schema registry.

Each has an ``extra`` of its own, and a ``registry_kind``: the registry's name of its language.
"""

Format: TypeAlias = Json | Registered | Raw

SchemaId: TypeAlias = int | UUID
"""A number of a schema registry's, or the GUID that newer clients write into a header."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a schema registry.

    Attributes:
        kind: the registry's name of its language, which is the ``registry_kind`` of a format.
        text: the schema.
        referenced: names and texts of the schemas that it and these refer to, the nearest first.
        id: its number; 0: it has not been asked for by that.
    """

    kind: str
    text: str
    referenced: tuple[tuple[str, str], ...] = ()
    id: int = 0
