"""Record values to Arrow columns; records that are no events of their topic are rejected."""

from headrace.pipelines.source.decode.decoder import Decoded, Decoder
from headrace.pipelines.source.decode.registry import decoder_for

__all__ = ["Decoded", "Decoder", "decoder_for"]
