"""A record on its way to a topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.kafka.client.headers import Headers

_POLL_SECONDS = 0.1
_OVERHEAD_BYTES = 110  # of lengths, time and offset, in a batch of one


class ProducerRecord(msgspec.Struct, frozen=True, gc=False):
    """A record to write. ``partition`` -1 lets the key decide."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int = -1


def weight_of(record: ProducerRecord) -> int:
    """Returns the bytes of a record in a batch of its own, or a few more."""
    size = _OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        for part in (name.encode(), value or b""):
            size += len(part) + _varint_bytes(len(part))
    return size


def _varint_bytes(length: int) -> int:
    """Returns how many bytes a length takes in a record: zigzag, seven bits each."""
    return max(1, ((2 * length).bit_length() + 6) // 7)


def until_taken(
    produce: Callable[..., None], poll: Callable[[float], object], record: tuple[Any, ...]
) -> None:
    """Hands a record to the client; while its buffer is full, handles delivery reports.

    Args:
        produce: that of the client.
        poll: that of the client, or one that also handles what it raises.
        record: arguments of ``produce`` by their places, as arguments by name take half as long
            again: topic, value, key, partition, delivery callback, ``None`` (another name of the
            callback), timestamp (0: that of the client's clock), headers.

    Raises:
        KafkaException: if the client does not take the record, whatever room there is.
    """
    while True:
        try:
            return produce(*record)
        except BufferError:
            poll(_POLL_SECONDS)
