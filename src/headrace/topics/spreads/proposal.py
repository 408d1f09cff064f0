"""How many partitions each account of a topic should be spread over, and what that would move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.model import ByAccount, Spread, partition_of
from headrace.model.partitioning import width_at

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# So far below the limit an account must be before it gets fewer partitions.
_SHRINK_AT = 2
_PERCENT = 100

Parts = Mapping[tuple[str, int], int]
"""Load by account and number of the window."""


def proposed_widths(
    loads: Mapping[str, int], widths: Mapping[str, int], partitions: int, total: int, above: int
) -> dict[str, int]:
    """Returns over how many partitions accounts should be spread, of those that should change.

    An account grows to the fewest partitions on each of which it puts at most ``above`` percent of
    the mean load of a partition. It shrinks only to a number on which it would put at most half of
    that, so what was applied for a load is not proposed to change for the same load.

    Args:
        loads: of each account.
        widths: over how many partitions each is spread now; others are in one.
        partitions: of the topic.
        total: load of the topic.
        above: percent of the mean load of a partition.
    """
    proposed = {}
    for account in sorted(loads.keys() | widths.keys()):
        load, width = loads.get(account, 0), widths.get(account, 1)
        needed = _fewest(load, partitions, total, above)
        roomy = _fewest(load * _SHRINK_AT, partitions, total, above)
        if needed > width:
            proposed[account] = needed
        elif roomy < width:
            proposed[account] = roomy
    return proposed


def newest_widths(strategy: ByAccount, applied: Mapping[str, tuple[Spread, ...]]) -> dict[str, int]:
    """Returns over how many partitions each account is spread that has more than one at last.

    A spread counts although its ``since`` is not there yet.
    """
    end = datetime.max.replace(tzinfo=UTC)
    widths = {
        account: width_at((*strategy.spreads.get(account, ()), *applied.get(account, ())), end)
        for account in {**strategy.spreads, **applied}
    }
    return {account: width for account, width in widths.items() if width > 1}


def placed(
    parts: Parts, strategy: ByAccount, widths: Mapping[str, int], partitions: int
) -> dict[tuple[str, int], int]:
    """Returns the partition of each account and window, by the partitioner of producers."""
    since = datetime.min.replace(tzinfo=UTC)
    spreads = {account: (Spread(since, width),) for account, width in widths.items()}
    place = partition_of(ByAccount(strategy.window, spreads), partitions)
    return {
        (account, number): place({}, account, _EPOCH + number * strategy.window)
        for account, number in parts
    }


@dataclass(frozen=True)
class Movement:
    """What a change of widths would do to the load that was looked at.

    Attributes:
        before: load by partition, as accounts are spread now.
        after: load by partition, as they would be spread.
        moved: by account, the load that would lie in another partition.
        used_before: by account, in how many partitions its load lies.
        used_after: by account, in how many it would lie.
    """

    before: Counter[int]
    after: Counter[int]
    moved: Counter[str]
    used_before: Mapping[str, int]
    used_after: Mapping[str, int]


def movement(
    parts: Parts,
    strategy: ByAccount,
    widths: Mapping[str, int],
    changes: Mapping[str, int],
    partitions: int,
) -> Movement:
    """Returns what changes would move, by placing each account and window with the partitioner."""
    now = placed(parts, strategy, widths, partitions)
    then = placed(parts, strategy, {**widths, **changes}, partitions)
    before, after, moved = Counter[int](), Counter[int](), Counter[str]()
    for place, load in parts.items():
        before[now[place]] += load
        after[then[place]] += load
        if now[place] != then[place]:
            moved[place[0]] += load
    return Movement(before, after, moved, _used(now), _used(then))


def _used(places: Mapping[tuple[str, int], int]) -> dict[str, int]:
    return Counter(account for account, _ in {(key[0], p) for key, p in places.items()})


def _fewest(load: int, partitions: int, total: int, above: int) -> int:
    """Returns the fewest partitions on each of which the load is at most the limit."""
    if total <= 0:
        return 1
    # In whole numbers: load / width <= above % of total / partitions.
    return min(partitions, max(1, -(-load * partitions * _PERCENT // (above * total))))
