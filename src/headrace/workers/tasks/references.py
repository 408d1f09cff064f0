"""What a task looks values up in: the newest record of each key of a topic, as of one moment."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping
from typing import TypeAlias, TypeVar, cast, overload

ReferenceKey: TypeAlias = bytes | str | int | None
"""A record key: its bytes, or the text or whole number that these are. ``None`` has no value."""

ValueT = TypeVar("ValueT")
Default = TypeVar("Default")

# A change copies one bucket and the list of them: of a million keys, a thousand entries of each.
_BUCKETS = 1024


class References(Mapping[bytes | str | int, ValueT]):
    """A reference of a worker as it was at one moment: the newest value of each record key.

    It never changes: what arrives later is in the next one that a task gets. So it may be used on
    any thread, for as long as it is needed, and be pickled.

    ``accounts.get("ann")``, ``accounts[7]`` and ``record.key in accounts`` look a key up. Iteration
    is over keys as bytes, in no promised order.

    Args:
        values: by key, for tests and for direct calls of a worker's function.

    Raises:
        TypeError: if a key is neither bytes, text nor a whole number. So does each lookup.
    """

    __slots__ = ("_buckets", "_size")

    def __init__(
        self,
        values: Mapping[bytes, ValueT] | Mapping[str, ValueT] | Mapping[int, ValueT] | None = None,
    ) -> None:
        self._buckets: list[dict[bytes, ValueT]] = [{} for _ in range(_BUCKETS)]
        for key, value in (values or {}).items():
            encoded = record_key(key)
            self._buckets[_place(encoded)][encoded] = value
        self._size = sum(map(len, self._buckets))

    def __getitem__(self, key: ReferenceKey) -> ValueT:
        if key is None:
            raise KeyError(key)
        encoded = record_key(key)
        return self._buckets[_place(encoded)][encoded]

    @overload
    def get(self, key: ReferenceKey, /) -> ValueT | None: ...

    @overload
    def get(self, key: ReferenceKey, /, default: ValueT) -> ValueT: ...

    @overload
    def get(self, key: ReferenceKey, /, default: Default) -> ValueT | Default: ...

    def get(
        self, key: ReferenceKey, /, default: ValueT | Default | None = None
    ) -> ValueT | Default | None:
        """Returns the value of a key, or ``default`` where it has none."""
        if key is None:
            return default
        encoded = record_key(key)
        return self._buckets[_place(encoded)].get(encoded, default)

    def __iter__(self) -> Iterator[bytes]:
        for bucket in self._buckets:
            yield from bucket

    def keys(self) -> KeysView[bytes]:
        """Returns the keys as bytes."""
        return KeysView(cast("Mapping[bytes, ValueT]", self))

    def items(self) -> ItemsView[bytes, ValueT]:
        """Returns the keys as bytes, with their values."""
        return ItemsView(cast("Mapping[bytes, ValueT]", self))

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"<References: {self._size} keys>"

    # Buckets are those of this process: in another one, bytes have other hashes.
    def __reduce__(self) -> tuple[type[References[ValueT]], tuple[dict[bytes, ValueT]]]:
        return References, (dict(self.items()),)


def record_key(key: bytes | str | int) -> bytes:
    """Returns the bytes of a record key, as ingest and producers write the text of a field.

    Raises:
        TypeError: if it is neither bytes, text nor a whole number.
    """
    if isinstance(key, bytes):
        return key
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise TypeError(f"{key!r} is no record key: bytes, text, or a whole number")
    return str(key).encode()


def changed(references: References[ValueT], key: bytes, value: ValueT | None) -> References[ValueT]:
    """Returns references with another value of a key; ``None``: without the key."""
    place = _place(key)
    former = references._buckets[place]  # noqa: SLF001
    bucket = dict(former)
    if value is None:
        bucket.pop(key, None)
    else:
        bucket[key] = value
    later: References[ValueT] = References.__new__(References)
    later._buckets = references._buckets.copy()  # noqa: SLF001
    later._buckets[place] = bucket  # noqa: SLF001
    later._size = len(references) + len(bucket) - len(former)  # noqa: SLF001
    return later


def _place(key: bytes) -> int:
    return hash(key) % _BUCKETS
