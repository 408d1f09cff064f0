"""The sums of one pipeline's ledger by window, and the hops at which they differ."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.ledger.sums import FATES, Fate, Hop, Sums
from headrace.ledger.windows import Imbalance
from headrace.model import TopicPartition
from headrace.pipelines.ledger.counting.waiting import all_lines
from headrace.pipelines.ledger.entry import LedgerEntry
from headrace.pipelines.ledger.sums import LedgerKey, added


class WindowSums:
    """The sums of an entry, of which those of each window must balance from hop to hop.

    Attributes:
        starts: of the windows that have sums, in seconds since 1970; None: no event time.
    """

    def __init__(self, entry: LedgerEntry, *, has_steps: bool, is_join: bool) -> None:
        """Sorts the sums by window.

        Args:
            entry: the sums of all entries of a pipeline.
            has_steps: whether there are steps before the sink.
            is_join: whether the events that were read go through a join.
        """
        self._before_sink = Hop.STEPS if has_steps else Hop.SINK
        self._is_join = is_join
        self._waited = added((*all_lines(entry.waited), *entry.changed_elsewhere))
        self._waiting = added(all_lines(entry.waiting))
        self._windows: dict[int | None, dict[LedgerKey, Sums]] = {}
        for key, sums in added(entry.lines).items():
            self._windows.setdefault(key.window, {})[key] = sums
        for key in {*self._waiting, *self._waited}:
            self._windows.setdefault(key.window, {}).setdefault(key, Sums())
        self.starts = frozenset(self._windows)

    def of(self, hop: Hop, fate: Fate, start: int | None) -> Sums:
        """Returns the sums of a fate at a hop, of all partitions."""
        window = self._windows.get(start, {})
        return _sum(sums for key, sums in window.items() if (key.hop, key.fate) == (hop, fate))

    def ended(self, fate: Fate, start: int | None) -> int:
        """Returns how many events ended with this fate, without those that pass to the next hop."""
        if fate is Fate.WAITING:
            return self.waits(start)
        hops = (Hop.SINK,) if fate is Fate.OUT else (Hop.READ, Hop.JOIN, Hop.STEPS, Hop.SINK)
        return sum(self.of(hop, fate, start).number for hop in hops)

    def waits(self, start: int | None) -> int:
        """Returns how many later events of a join wait."""
        return sum(s.number for key, s in self._waiting.items() if key.window == start)

    def differences(self, start: int | None) -> Iterable[Imbalance]:
        """Yields the hops of a window that have other sums than the one before, by partition."""
        window = self._windows.get(start, {})
        for partition in sorted({TopicPartition(key.topic, key.partition) for key in window}):
            yield from self._of_partition(start, partition)

    def _of_partition(self, start: int | None, partition: TopicPartition) -> Iterable[Imbalance]:
        window, name = self._windows[start], f"{partition.topic}/{partition.partition}"

        def of(hop: Hop, fate: Fate) -> Sums:
            key = LedgerKey(hop, fate, start, partition.topic, partition.partition)
            return window.get(key, Sums())

        read = _sum(of(Hop.READ, fate) for fate in FATES)
        yield from _difference(Hop.READ, of(Hop.READ, Fate.IN), read, name)
        forwarded = of(Hop.READ, Fate.OUT)
        if self._is_join:
            joined = _sum(of(Hop.JOIN, fate) for fate in FATES)
            yield from _difference(Hop.JOIN, forwarded, joined, name)
            # Events whose wait has not ended, and those that wait in the state.
            key = LedgerKey(Hop.JOIN, Fate.WAITING, start, partition.topic, partition.partition)
            began = self._waited.get(key, Sums()) + window.get(key, Sums())
            yield from _difference(Hop.JOIN, began, self._waiting.get(key, Sums()), name)
            forwarded = of(Hop.JOIN, Fate.OUT)
        came = of(Hop.SINK, Fate.IN)
        dropped = _sum(of(Hop.STEPS, fate) for fate in FATES)
        yield from _difference(self._before_sink, forwarded, came + dropped, name)
        yield from _difference(Hop.SINK, came, _sum(of(Hop.SINK, f) for f in FATES), name)


def _sum(sums: Iterable[Sums]) -> Sums:
    return sum(sums, Sums())


def _difference(hop: Hop, came: Sums, went: Sums, partition: str) -> Iterable[Imbalance]:
    missing = came - went
    if missing != Sums():
        yield Imbalance(hop, missing.number, missing.bytes, missing.hash != 0, partition)
