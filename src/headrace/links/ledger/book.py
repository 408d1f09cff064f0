"""What was counted of a link, and whether its two ends balance, window by window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import ClassVar

from headrace.ledger.balance import Remark, WindowBook
from headrace.ledger.sums import Fate, Hop, Sums
from headrace.ledger.windows import Imbalance, WindowBalance, WindowState
from headrace.links.accepted import AcceptedRange
from headrace.links.ledger.records import LinkKey

_ENDED = (Fate.OUT, Fate.FILTERED, Fate.WAITING, Fate.EXPIRED, Fate.LATE, Fate.LEFT_OUT)


@dataclass(frozen=True)
class LinkCount:
    """The records at both ends of a link, where both hold them.

    Attributes:
        partitions: names of the target's partitions that were counted, by number.
        source: sums of the records at the source, by fate.
        target: those at the target.
        is_exact: whether records of the target name their offsets at the source; those at or
            after the position are then WAITING there, too.
        unknown: why other partitions were not counted, as sentences.
        accepted: ranges that a user has accepted to leave out, and that the position has passed.
    """

    partitions: Mapping[int, str] = field(default_factory=dict)
    source: Mapping[LinkKey, Sums] = field(default_factory=dict)
    target: Mapping[LinkKey, Sums] = field(default_factory=dict)
    is_exact: bool = False
    unknown: Sequence[str] = ()
    accepted: Sequence[AcceptedRange] = ()


@dataclass(frozen=True)
class LinkBook(WindowBook):
    """The windows of one link.

    Attributes:
        kind: of the link, such as ``mirror``.
        name: of the link.
        source: the topics that are read, with their site.
        target: the topic that is written, with its site.
        window_seconds: length of the windows.
        windows: those asked for, the oldest first. ``read`` are records of the source, ``rows``
            those of the target.
        left_out: ranges that a user has accepted to leave out, the oldest first.
        unknown: why nothing is known, as a sentence; empty: something is.
    """

    section: ClassVar = "links"
    heading: ClassVar = "{0.kind} {0.name}: {0.source} to {0.target}"
    untimed: ClassVar = "no time"
    tables: ClassVar = {"in target": "rows"}

    kind: str
    name: str
    source: str
    target: str
    window_seconds: int
    windows: tuple[WindowBalance, ...] = ()
    left_out: tuple[AcceptedRange, ...] = ()
    unknown: str = ""

    def columns(self) -> list[str]:
        """Returns those of the windows; none without windows."""
        return super().columns() if self.windows else []

    def extras(self) -> Iterator[Remark]:
        """Yields what was left out."""
        for range_ in self.left_out:
            yield Remark("left out", _accepted(range_))
        if not self.windows:
            yield Remark("", "no windows")


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
    state = WindowState.CLOSING if fates.get(Fate.WAITING) else WindowState.BALANCED
    if start is not None and start + window_seconds > now:
        state = WindowState.OPEN
    return WindowBalance(
        None if start is None else datetime.fromtimestamp(start, UTC),
        WindowState.of(differences, unknown, state),
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
        # What was committed after the positions were read is at the target, and still waits by the
        # source. Its records can't be named, so as many as wait may be there.
        is_early = waiting and missing.number <= 0
        too_many = max(-missing.number - waiting, 0) if is_early else 0
        missing = Sums() if is_early else missing
    if missing != Sums() or too_many:
        amount = missing.number - too_many
        yield Imbalance(Hop.TARGET, amount, missing.bytes, missing.hash != 0, name)


def _accepted(range_: AcceptedRange) -> str:
    source, offsets = range_.source.path, range_.offsets
    what = (
        f"what was in {source} before; it continues at offset {range_.end:,}"
        if offsets is None
        else f"{offsets:,} offsets, {range_.start:,} to {range_.end - 1:,} of {source}"
    )
    return f"{what}, accepted {range_.accepted:%Y-%m-%d %H:%M:%S} UTC: {range_.reason}"
