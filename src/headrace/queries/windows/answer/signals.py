"""Loss of signal: when queries last had events, and which windows report the loss."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headrace.queries.windows.aggregate.plan import AggregatePlan


class QuerySignals:
    """The loss-of-signal state of queries.

    Args:
        silence: the end of the last window with events, in microseconds since 1970, and whether the
            loss has been reported since, by query; from the snapshots.
    """

    def __init__(self, silence: Mapping[str, tuple[int, bool]]) -> None:
        self._silence = dict(silence)
        self._changed: set[str] = set()

    def note_events(self, name: str, end_us: int) -> None:
        """Notes that a window of a query that ends at ``end_us`` had events."""
        known = self._silence.get(name)
        if known is None or known[0] < end_us:
            self._note(name, end_us, is_reported=False)

    def lost(
        self, name: str, plan: AggregatePlan, begins: range, ends_with_events: Iterable[int]
    ) -> list[int]:
        """Returns the starts of the windows that report a loss of signal.

        Args:
            name: the name of the query.
            plan: the plan of its text.
            begins: the starts of its windows that have ended since the last call, at least one.
            ends_with_events: the ends of ended windows with events, of any text of the query.
        """
        lost = []
        known = begins[0] + plan.window_us - plan.slide_us, False
        seen_us, is_reported = self._silence.get(name, known)
        behind_us = begins.stop + plan.window_us
        for end_us in [*sorted(ends_with_events), behind_us]:
            due_us = seen_us + plan.loss_after * plan.slide_us - plan.window_us
            begin_us = max(next_begin(due_us, plan.slide_us), begins[0])
            is_lost = begin_us in begins and begin_us + plan.window_us < end_us
            if is_lost and not is_reported:
                lost.append(begin_us)
                is_reported = True
            if seen_us < end_us < behind_us:
                seen_us, is_reported = end_us, False
        self._note(name, seen_us, is_reported=is_reported)
        return lost

    def forget(self, name: str) -> None:
        """Drops the state of a query that does not ask for loss of signal."""
        self._silence.pop(name, None)

    def keep(self, names: Collection[str]) -> None:
        """Drops the state of all other queries."""
        self._silence = {name: known for name, known in self._silence.items() if name in names}

    def changed(self, *, all_queries: bool = False) -> dict[str, tuple[int, bool]]:
        """Returns the states that changed since the last call, or all of them, by query."""
        changed, self._changed = self._changed, set()
        if all_queries:
            return dict(self._silence)
        return {name: self._silence[name] for name in sorted(changed) if name in self._silence}

    def _note(self, name: str, seen_us: int, *, is_reported: bool) -> None:
        if self._silence.get(name) != (seen_us, is_reported):
            self._silence[name] = (seen_us, is_reported)
            self._changed.add(name)


def next_begin(time_us: int, slide_us: int) -> int:
    """Returns the start of the first window that starts at or after a time."""
    return -(-time_us // slide_us) * slide_us
