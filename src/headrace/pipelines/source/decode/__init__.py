"""Record values to Arrow columns; records that are no events of their topic are rejected."""

from headrace.pipelines.source.decode.decoder import Decoded, Decoder, record_values
from headrace.pipelines.source.decode.registry import columns_for, decoder_for

__all__ = ["Decoded", "Decoder", "columns_for", "decoder_for", "record_values"]
