"""What a decoder takes and gives. Importing this module imports no native library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.model import EventSchema


@dataclass(frozen=True, slots=True)
class EventTimeBounds:
    """Events whose ``column`` lies outside are bad; microseconds since 1970, both included."""

    column: str
    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of a chunk of records: each is a row or is bad, and none is both.

    Attributes:
        rows: the good records in their order, with exactly the decoder's ``arrow_schema``.
        bad: (index of the record in the chunk, reason code, detail), ascending.
    """

    rows: pa.Table
    bad: list[tuple[int, str, str]]


class Decoder(Protocol):
    """Turns record values into columns, in the read task, once for every chunk of records.

    ``decode`` never raises because of what a record holds, and what it says about a record does
    not depend on the records around it. Instances are not shared between threads.
    """

    arrow_schema: pa.Schema

    def decode(self, values: Sequence[bytes | None], bounds: EventTimeBounds | None) -> Decoded:
        """Decode a chunk; ``bounds`` are ignored by decoders without fields."""
        ...


def decoder_for(schema: EventSchema | None, partition_columns: Sequence[str] = ()) -> Decoder:
    """The decoder of a topic: JSON events with a schema, raw bytes without.

    ``partition_columns`` are the string fields whose unsafe values make a record bad (see
    :func:`~headrace.model.partition_value.unsafe_partition_value`).
    """
    if schema is None:
        from headrace.pipelines.source.decode.raw import RawDecoder

        return RawDecoder()
    from headrace.pipelines.source.decode.events import JsonDecoder

    return JsonDecoder(schema, partition_columns)
