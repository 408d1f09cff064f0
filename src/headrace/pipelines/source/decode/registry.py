"""Which decoder reads which format. Importing this module imports no native library."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from headrace.errors import UnknownFormatError
from headrace.model import (
    Avro,
    EventSchema,
    Format,
    Json,
    JsonSchema,
    Protobuf,
    Raw,
    RegisteredSchema,
    SchemaId,
)
from headrace.pipelines.source.decode.decoder import Decoder
from headrace.settings import SchemaRegistrySettings

if TYPE_CHECKING:
    import pyarrow as pa


def decoder_for(
    record_format: Format,
    schema: EventSchema | None,
    registry: SchemaRegistrySettings | None = None,
    needed: Collection[str] | None = None,
) -> Decoder:
    """Returns a new decoder of a format. It connects to the registry with the first record.

    Decoders are imported here because they bring Arrow, which must not be loaded before Spark
    forks its Python workers.

    Args:
        record_format: of the topic.
        schema: of its events; ``None``: they are raw bytes.
        registry: where the schemas of Avro and Protobuf are.
        needed: names of the fields whose columns are looked at; None: all. There may be others.

    Raises:
        UnknownFormatError: if ``record_format`` is none of the formats.
        ValueError: if there is no registry for Avro or Protobuf.
    """
    if not isinstance(record_format, Raw | Json | JsonSchema | Avro | Protobuf):
        raise UnknownFormatError(record_format)
    if schema is None or isinstance(record_format, Raw):
        from headrace.pipelines.source.decode.raw import RawDecoder

        return RawDecoder()
    match record_format:
        case Json():
            from headrace.pipelines.source.decode.json_events import JsonDecoder

            return JsonDecoder(schema, needed)
        case JsonSchema():
            from headrace.pipelines.source.decode.json_events import JsonSchemaDecoder

            return JsonSchemaDecoder(schema, needed)
        case Avro():
            from headrace.events.avro.references import AvroSchemas
            from headrace.pipelines.source.decode.avro import AvroDecoder

            return AvroDecoder(schema, AvroSchemas(_lookup(Avro.registry_kind, registry)), needed)
        case Protobuf():
            from headrace.pipelines.source.decode.protobuf import ProtobufDecoder

            return ProtobufDecoder(schema, _lookup(Protobuf.registry_kind, registry))


def _lookup(
    kind: str, registry: SchemaRegistrySettings | None
) -> Callable[[SchemaId], RegisteredSchema | None]:
    from headrace.kafka.admin.schema_registry import lookup_of

    if registry is None:
        raise ValueError(f"schemas of {kind} have no registry")
    return lookup_of(registry, kind)


def columns_for(schema: EventSchema | None) -> pa.Schema:
    """Returns the columns that the decoders make, which are those of the event in every format.

    Args:
        schema: of the events; ``None``: they are raw bytes.
    """
    if schema is None:
        from headrace.pipelines.source.decode.raw import RawDecoder

        return RawDecoder().arrow_schema
    from headrace.pipelines.source.decode.columns import arrow_schema

    return arrow_schema(schema)
