"""Which values of a state no record has set for longer than the worker's ``state_ttl``."""

from __future__ import annotations

import heapq

from headrace.kafka.client.headers import OWN_PREFIX, Headers

SET_AT = OWN_PREFIX + "set-at"
"""The header of a value: the stream time at the record that set it."""


def set_at_headers(time_ms: int) -> Headers:
    """Returns the headers of a value that was set at a stream time."""
    return ((SET_AT, b"%d" % time_ms),)


def set_at_of(headers: Headers | None) -> int | None:
    """Returns the stream time in the headers of a value; ``None``: there is none."""
    written = dict(headers or ()).get(SET_AT)
    try:
        return None if written is None else int(written)
    except ValueError:
        return None  # of another program


class Expiry:
    """When the values of a partition were set, in milliseconds of stream time.

    Args:
        ttl_ms: a value is over at the record whose stream time is so much later.
    """

    def __init__(self, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._set_at: dict[bytes, int] = {}
        # One entry for each key, with a time at which it was set: the last time may be later. So a
        # value that is set with each record costs nothing more than others.
        self._heap: list[tuple[int, bytes]] = []
        self._queued: set[bytes] = set()

    def set(self, key: bytes, time_ms: int) -> None:
        """Notes when the value of a key was set last."""
        self._set_at[key] = time_ms
        if key not in self._queued:
            self._queued.add(key)
            heapq.heappush(self._heap, (time_ms, key))

    def forget(self, key: bytes) -> None:
        """Notes that the key has no value."""
        self._set_at.pop(key, None)

    def is_over(self, key: bytes, now_ms: int) -> bool:
        """Returns whether the value of a key is over at a stream time."""
        set_at = self._set_at.get(key)
        return set_at is not None and set_at + self._ttl_ms <= now_ms

    def over(self, now_ms: int, max_bytes: int) -> tuple[bytes, ...]:
        """Returns keys whose values are over, the oldest first, until they have ``max_bytes``."""
        over: list[tuple[int, bytes]] = []
        heap, size = self._heap, 0
        while heap and size < max_bytes and heap[0][0] + self._ttl_ms <= now_ms:
            key = heap[0][1]
            set_at = self._set_at.get(key)
            if set_at is None:
                heapq.heappop(heap)
                self._queued.discard(key)
            elif set_at > heap[0][0]:
                heapq.heapreplace(heap, (set_at, key))
            else:
                over.append(heapq.heappop(heap))
                size += len(key)
        for entry in over:  # they stay until their deletion is written
            heapq.heappush(heap, entry)
        return tuple(key for _, key in over)
