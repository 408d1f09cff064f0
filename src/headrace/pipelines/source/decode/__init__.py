"""Record values to Arrow columns, the bad ones set aside with their reasons."""

from headrace.pipelines.source.decode.decoder import (
    Decoded,
    Decoder,
    EventTimeBounds,
    decoder_for,
)

__all__ = ["Decoded", "Decoder", "EventTimeBounds", "decoder_for"]
