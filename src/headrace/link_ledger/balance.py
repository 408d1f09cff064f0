"""Whether the two ends of a link balance, window by window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from headrace.ledger.sums import Fate, Hop, Sums
from headrace.ledger.windows import Imbalance, WindowBalance, WindowState
from headrace.link_ledger.count import LinkCount
from headrace.link_ledger.records import LinkKey

_ENDED = (Fate.OUT, Fate.FILTERED, Fate.WAITING, Fate.EXPIRED, Fate.LATE, Fate.LEFT_OUT)


def link_windows(count: LinkCount, window_seconds: int, now: float) -> list[WindowBalance]:
    """Returns each window that has records, those without a time first.

    Of records that wait, any part may be at the target already, and is no difference.

    Args:
        count: of both ends.
        window_seconds: length of the windows.
        now: the time of the count, in seconds since 1970.
    """
    source, target = _by_window(count.source), _by_window(count.target)
    ordered = sorted({*source, *target}, key=lambda start: -1 if start is None else start)
    return [
        _window(
            replace(count, source=source.get(start, {}), target=target.get(start, {})),
            start,
            window_seconds,
            now,
        )
        for start in ordered
    ]


def _by_window(sums: Mapping[LinkKey, Sums]) -> dict[int | None, dict[LinkKey, Sums]]:
    windows: dict[int | None, dict[LinkKey, Sums]] = {}
    for key, of_key in sums.items():
        windows.setdefault(key.window, {})[key] = of_key
    return windows


def _window(count: LinkCount, start: int | None, window_seconds: int, now: float) -> WindowBalance:
    differences = tuple(
        difference
        for number, name in sorted(count.partitions.items())
        for difference in _difference(count, start, number, name)
    )
    source, target = _fates(count.source), _fates(count.target)
    fates = source | {Fate.LATE: target.get(Fate.LATE, 0)}
    # Late ones that are written and not committed yet are among those that wait.
    fates[Fate.OUT] = max(fates.get(Fate.OUT, 0) - fates[Fate.LATE], 0)
    unknown = "; ".join(count.unknown)
    if differences:
        state = WindowState.UNBALANCED
    elif unknown:
        state = WindowState.UNKNOWN
    elif start is not None and start + window_seconds > now:
        state = WindowState.OPEN
    else:
        state = WindowState.CLOSING if fates.get(Fate.WAITING) else WindowState.BALANCED
    return WindowBalance(
        None if start is None else datetime.fromtimestamp(start, UTC),
        state,
        sum(source.values()),
        {fate: fates[fate] for fate in _ENDED if fates.get(fate)},
        differences,
        "" if differences else unknown,
        target.get(Fate.OUT, 0) + target.get(Fate.WAITING, 0),
    )


def _fates(sums: Mapping[LinkKey, Sums]) -> dict[Fate, int]:
    numbers: dict[Fate, int] = {}
    for key, of_key in sums.items():
        numbers[key.fate] = numbers.get(key.fate, 0) + of_key.number
    return numbers


def _difference(count: LinkCount, start: int | None, number: int, name: str) -> Iterable[Imbalance]:
    def sums(end: Mapping[LinkKey, Sums], *fates: Fate) -> Sums:
        return sum((end.get(LinkKey(number, start, fate), Sums()) for fate in fates), Sums())

    missing = sums(count.source, Fate.OUT) - sums(count.target, Fate.OUT, Fate.LATE)
    waiting = sums(count.source, Fate.WAITING).number
    if count.is_exact:
        too_many = max(sums(count.target, Fate.WAITING).number - waiting, 0)
    else:
        is_early = waiting and missing.number <= 0
        too_many = max(-missing.number - waiting, 0) if is_early else 0
        missing = Sums() if is_early else missing
    if missing != Sums() or too_many:
        amount = missing.number - too_many
        yield Imbalance(Hop.TARGET, amount, missing.bytes, missing.hash != 0, name)
