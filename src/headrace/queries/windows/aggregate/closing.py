"""The ways in which windows of a query end: a class for each."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

from headrace.model.durations import microseconds
from headrace.queries.language.tree import ClosedBy, Query

# After a window has ended, its publish marker is kept for this time: events for it are late.
REMEMBERED_MS = 3_600_000
# Without a new batch whose time shows that a window ended long ago, the marker is kept this long.
MAX_REMEMBERED_MS = 24 * 3_600_000


@dataclass(frozen=True)
class WindowClosing(abc.ABC):
    """Decides when a window ends, and whether a window that is not in memory has ended already.

    Times are in microseconds since 1970.

    Attributes:
        topic: the topic of the events.
        after_us: the time from the window's end, or its last event, to its closing, in
            microseconds.
        needs_markers: whether publish markers of ended windows must be kept, because no clock
            shows that they have ended.
    """

    topic: str
    after_us: int

    needs_markers: ClassVar[bool] = True

    @property
    def ordered_by(self) -> str:
        """The topic whose event clock closes and sorts windows; empty if the wall clock does."""
        return ""

    def marker_due_us(self, due_us: int) -> int | None:  # noqa: ARG002
        """Returns ``due_us`` if the window's marker is kept until :func:`is_long_over`, or None.

        Args:
            due_us: when the window was due to end.
        """
        return None

    def due_us(self, end_us: int, changed_us: int) -> int:  # noqa: ARG002
        """Returns when a window ends, on the clock that :attr:`ordered_by` names.

        Args:
            end_us: the end of the window.
            changed_us: when its last events came, by the wall clock.
        """
        return end_us + self.after_us

    def result_us(self, due_us: int, now_us: int) -> int:  # noqa: ARG002
        """Returns the time by which the results of ended windows are sorted.

        Args:
            due_us: when the window was due to end.
            now_us: the wall clock.
        """
        return due_us

    @abc.abstractmethod
    def has_ended(self, due_us: int, event_us: int | None, planned_us: int | None) -> bool:
        """Returns whether a window has ended that is not in memory and has no publish marker.

        Args:
            due_us: when the window is due to end.
            event_us: the event clock of the topic; ``None`` if it is not known.
            planned_us: when the last batch of the topic was planned, but no later than now;
                ``None`` if there was no batch.
        """


class EventTimeClosing(WindowClosing):
    """A window ends when the event clock has passed its end and the allowed lateness."""

    needs_markers = False

    @property
    def ordered_by(self) -> str:
        """See :class:`WindowClosing`."""
        return self.topic

    def has_ended(self, due_us: int, event_us: int | None, planned_us: int | None) -> bool:  # noqa: ARG002
        """See :class:`WindowClosing`."""
        return event_us is not None and due_us <= event_us


class ClockClosing(WindowClosing):
    """A window ends ``after_us`` after its end, by the wall clock of the instance."""

    def has_ended(self, due_us: int, event_us: int | None, planned_us: int | None) -> bool:  # noqa: ARG002
        """See :class:`WindowClosing`.

        The window is compared with the time of the batch, not with now: after a downtime, an
        instance takes records that were matched long ago. Windows that ended later have markers.
        """
        return is_long_over(due_us, planned_us)

    def marker_due_us(self, due_us: int) -> int | None:
        """See :class:`WindowClosing`."""
        return due_us


class QuietTimeClosing(WindowClosing):
    """A window ends when none of its events has come for ``after_us``, by the wall clock."""

    def due_us(self, end_us: int, changed_us: int) -> int:  # noqa: ARG002
        """See :class:`WindowClosing`."""
        return changed_us + self.after_us

    def result_us(self, due_us: int, now_us: int) -> int:  # noqa: ARG002
        """Returns the wall clock: results are in the order in which windows end."""
        return now_us

    def has_ended(self, due_us: int, event_us: int | None, planned_us: int | None) -> bool:  # noqa: ARG002
        """Returns ``False``: an event opens a window at any time."""
        return False


def is_long_over(due_us: int, planned_us: int | None) -> bool:
    """Returns whether a window was due to end :data:`REMEMBERED_MS` or more before a batch.

    Args:
        due_us: when the window was due to end, by the wall clock.
        planned_us: when the batch was planned; ``None`` if there was no batch.
    """
    return planned_us is not None and due_us + REMEMBERED_MS * 1000 <= planned_us


def closing_of(query: Query) -> WindowClosing:
    """Returns how the windows of a checked query close."""
    after_us = microseconds(query.closing.after)
    match query.closing.by:
        case ClosedBy.EVENT_TIME:
            return EventTimeClosing(query.topic, microseconds(query.allowed_lateness))
        case ClosedBy.CLOCK:
            return ClockClosing(query.topic, after_us)
        case ClosedBy.QUIET_TIME:
            return QuietTimeClosing(query.topic, after_us)
