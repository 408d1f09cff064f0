"""Partition strategies: which partition of its topic an event belongs to.

They are those of New Relic's article on its Kafka pipeline. Each but ``Random`` is a pure function
of the event: an event that is sent again goes to the same partition. Fields are ``str`` or ``int``:
other values, such as times, may be written in several ways, and would be in several partitions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from headrace.model.event import value_at

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Constants and steps of Kafka's murmur2: a producer of any language must find the same partition.
MURMUR2_SEED = 0x9747B28C
MURMUR2_MULTIPLIER = 0x5BD1E995
_32_BITS = 0xFFFFFFFF


@dataclass(frozen=True)
class ByKey:
    """Partitions by the record's key: all events of a key keep their order. The default."""


@dataclass(frozen=True)
class Random:
    """Anywhere: even load, no order. A record keeps its key."""


@dataclass(frozen=True)
class ByField:
    """By another field than the key, also a nested one: events of one value keep their order."""

    field: str


@dataclass(frozen=True)
class ByHash:
    """Partitions by fields and window of event time: a value's windows are in several partitions.

    So a value that has most of the events makes no partition hot for longer than a window. Events
    of one value and one window keep their order.
    """

    fields: tuple[str, ...]
    window: timedelta


@dataclass(frozen=True)
class ByShard:
    """By a map of the field's values to partitions, such as those of a database's shards."""

    field: str
    shards: Mapping[Any, int]
    otherwise: int = 0


@dataclass(frozen=True)
class Spread:
    """Over how many partitions an account is spread, from ``since`` on."""

    since: datetime
    partitions: int


@dataclass(frozen=True)
class ByAccount:
    """Partitions by account; one too large for a partition is spread over several, by windows.

    All events of an account and a window lie in one partition, in their order. A new ``Spread``
    counts for the windows that start at or after its ``since``, so growing and shrinking never
    divides a window.

    Attributes:
        window: of event time.
        spreads: for large accounts, in the order of their ``since``; all others have one partition.
        account: field of the event that holds its account, by its path; ``None``: the account is
            that of the token, or of ``--account``.
        lead: lets ``headrace topics spread --apply`` change spreads while producers run: a spread
            is applied at least so long before the first window that it counts for, and a producer
            that has not read what was applied for so long sends nothing that it might misplace.
            ``None``: only ``spreads`` count.
    """

    window: timedelta
    spreads: Mapping[str, tuple[Spread, ...]] = field(default_factory=dict)
    account: str | None = None
    lead: timedelta | None = None


Partitioning: TypeAlias = ByKey | Random | ByField | ByHash | ByShard | ByAccount


def keeps_keys(strategy: Partitioning, key: str | None) -> bool:
    """Returns whether one partition has all events of a key, whose field is ``key``."""
    match strategy:
        case ByKey():
            return True
        case ByField(name) | ByShard(name):
            return name == key
        case ByAccount(_, spreads, account, lead):
            return not spreads and lead is None and account is not None and account == key
    return False


Partition: TypeAlias = Callable[[Mapping[str, Any], str, datetime], int]
"""Of the event's fields, account and event time: the partition; -1 for the client's choice."""

AppliedSpreads: TypeAlias = Callable[[str, datetime], Sequence[Spread]]
"""Of an account and the start of a window: the spreads that were applied beside the declared."""


def partition_of(
    strategy: Partitioning, partitions: int, applied: AppliedSpreads | None = None
) -> Partition:
    """Returns the strategy as a function, for a topic of ``partitions`` partitions.

    Args:
        strategy: as declared.
        partitions: how many the topic has.
        applied: what was applied beside the declared spreads; what it raises comes out of the
            function.
    """
    match strategy:
        case ByKey():
            return lambda _fields, _account, _time: -1
        case Random():
            return lambda _fields, _account, _time: random.randrange(partitions)  # noqa: S311
        case ByField(name):
            return lambda fields, _account, _time: _placed(_text(fields, name), partitions)
        case ByHash(names, window):
            return lambda fields, _account, time: _placed(
                "|".join([*(_text(fields, name) for name in names), str(_begin(time, window))]),
                partitions,
            )
        case ByShard(name, shards, otherwise):
            return lambda fields, _account, _time: shards.get(_value(fields, name), otherwise)
        case ByAccount():
            return lambda fields, account, time: _spread(
                strategy,
                account if strategy.account is None else _text(fields, strategy.account),
                time,
                partitions,
                applied,
            )


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, as a signed 32-bit integer (``Utils.murmur2`` of its Java client)."""
    value = (MURMUR2_SEED ^ len(data)) & _32_BITS
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * MURMUR2_MULTIPLIER & _32_BITS
        word = (word ^ (word >> 24)) * MURMUR2_MULTIPLIER & _32_BITS
        value = (value * MURMUR2_MULTIPLIER & _32_BITS) ^ word
    if whole < len(data):
        value ^= int.from_bytes(data[whole:], "little")
        value = value * MURMUR2_MULTIPLIER & _32_BITS
    value = (value ^ (value >> 13)) * MURMUR2_MULTIPLIER & _32_BITS
    value ^= value >> 15
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of_key(key: bytes, partitions: int) -> int:
    """Returns the partition of a record with a key, as the producers of headrace choose it.

    It is that of Kafka's Java client.
    """
    return _positive(key) % partitions


def _placed(text: str, partitions: int) -> int:
    return partition_of_key(text.encode(), partitions)


def _positive(data: bytes) -> int:
    # As Kafka's partitioner: it clears the sign bit, where abs() would fail for the lowest number.
    return murmur2(data) & 0x7FFFFFFF


def _text(fields: Mapping[str, Any], path: str) -> str:
    return str(_value(fields, path))


def _value(fields: Mapping[str, Any], path: str) -> Any:
    value = value_at(fields, path)
    # Null and the empty text share a partition, so every event has one.
    return "" if value is None else value


def _begin(time: datetime, window: timedelta) -> int:
    return (time - _EPOCH) // window


def first_window(time: datetime, window: timedelta) -> datetime:
    """Returns the start of the first window that starts at or after a time."""
    return _EPOCH - (_EPOCH - time) // window * window


def window_start(number: int, window: timedelta) -> datetime:
    """Returns the start of a window by its number; that of 0 starts in 1970."""
    return _EPOCH + number * window


def width_at(spreads: Iterable[Spread], begin: datetime) -> int:
    """Returns over how many partitions an account is spread in a window.

    Args:
        spreads: of the account. The latest ``since`` counts; of equal ones the last in order.
        begin: of the window.
    """
    width, latest = 1, None
    for spread in spreads:
        if spread.since <= begin and (latest is None or latest <= spread.since):
            width, latest = spread.partitions, spread.since
    return width


def _spread(
    strategy: ByAccount,
    account: str,
    time: datetime,
    partitions: int,
    applied: AppliedSpreads | None,
) -> int:
    # By the window's start, and not by the event's time: else a new spread divides a window.
    number = _begin(time, strategy.window)
    begin = window_start(number, strategy.window)
    spreads: Sequence[Spread] = strategy.spreads.get(account, ())
    if applied is not None:
        spreads = (*spreads, *applied(account, begin))
    first = _positive(account.encode())
    return (first + _positive(str(number).encode()) % width_at(spreads, begin)) % partitions
