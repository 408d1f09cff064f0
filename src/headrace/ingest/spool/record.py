"""What the spool keeps of an event, and how it is written."""

from __future__ import annotations

import msgspec


class SpoolRecord(msgspec.Struct, frozen=True, array_like=True):
    """One record on its way to Kafka.

    Attributes:
        topic: Kafka's name of it.
        key: as Kafka gets it; ``None`` for no promised order.
        value: as Kafka gets it.
        headers: as Kafka gets them, in order.
        timestamp_ms: milliseconds since 1970.
        partition: ``None`` lets the producer's partitioner choose.
    """

    topic: str
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int
    partition: int | None


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(SpoolRecord).decode
