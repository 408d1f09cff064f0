"""Which decoder reads which format. Importing this module imports no native library."""

from __future__ import annotations

from headrace.model import EventSchema, Format, Raw
from headrace.pipelines.source.decode.decoder import Decoder


def decoder_for(record_format: Format, schema: EventSchema | None) -> Decoder:
    """Returns a new decoder of a format for events with ``schema``, which raw bytes do not have.

    Decoders are imported here because they bring Arrow, which must not be loaded before Spark
    forks its Python workers.
    """
    if isinstance(record_format, Raw) or schema is None:
        from headrace.pipelines.source.decode.raw import RawDecoder

        return RawDecoder()
    from headrace.pipelines.source.decode.json_events import JsonDecoder

    return JsonDecoder(schema)
