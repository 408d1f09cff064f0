"""The ways in which the windows of a query end: a class for each."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

from headrace.model.durations import microseconds
from headrace.queries.language.tree import ClosedBy, Query

# Windows that ended by the clock are known for so long: what comes for them is late.
REMEMBERED_MS = 3_600_000
# A topic may have no batch, whose time says that windows ended long ago: then for so long.
MAX_REMEMBERED_MS = 24 * 3_600_000


@dataclass(frozen=True)
class WindowClosing(abc.ABC):
    """When the windows of a query end, and which of them have ended without being open.

    Times are in microseconds since 1970.

    Attributes:
        topic: of the events.
        after_us: how long after its end, or its last event, a window ends, in microseconds.
        needs_markers: whether an aggregator must remember the windows that have ended, since no
            time says that they have.
    """

    topic: str
    after_us: int

    needs_markers: ClassVar[bool] = True

    @property
    def ordered_by(self) -> str:
        """The topic whose event time ends windows, and orders them; empty: the clock does."""
        return ""

    def marker_due_us(self, due_us: int) -> int | None:  # noqa: ARG002
        """Returns when a window was to end, if its marker is needed until :func:`is_long_over`.

        Args:
            due_us: when the window was to end.
        """
        return None

    def due_us(self, end_us: int, changed_us: int) -> int:  # noqa: ARG002
        """Returns when a window ends, by the time of :attr:`ordered_by`.

        Args:
            end_us: end of the window.
            changed_us: when its last events came, by the clock.
        """
        return end_us + self.after_us

    def result_us(self, due_us: int, now_us: int) -> int:  # noqa: ARG002
        """Returns the place of an ended window among those that have the same order.

        Args:
            due_us: when it was to end.
            now_us: the clock.
        """
        return due_us

    @abc.abstractmethod
    def has_ended(self, due_us: int, event_us: int | None, planned_us: int | None) -> bool:
        """Returns whether a window that is not open, and has no marker, has ended.

        Args:
            due_us: when it is to end.
            event_us: the time of the topic's events; None: not known.
            planned_us: when the last batch of the topic was planned, and no later than now; None:
                there was none.
        """


class EventTimeClosing(WindowClosing):
    """A window ends when the time of events has passed its end and the allowed lateness."""

    needs_markers = False

    @property
    def ordered_by(self) -> str:
        """See :class:`WindowClosing`."""
        return self.topic

    def has_ended(self, due_us: int, event_us: int | None, planned_us: int | None) -> bool:  # noqa: ARG002
        """See :class:`WindowClosing`."""
        return event_us is not None and due_us <= event_us


class ClockClosing(WindowClosing):
    """A window ends so long after its end, by the clock of the instance."""

    def has_ended(self, due_us: int, event_us: int | None, planned_us: int | None) -> bool:  # noqa: ARG002
        """See :class:`WindowClosing`.

        By the time of the batch: an instance that was away takes records of long ago. Windows that
        ended later have markers.
        """
        return is_long_over(due_us, planned_us)

    def marker_due_us(self, due_us: int) -> int | None:
        """See :class:`WindowClosing`."""
        return due_us


class QuietTimeClosing(WindowClosing):
    """A window ends when no event of it has come for so long, by the clock."""

    def due_us(self, end_us: int, changed_us: int) -> int:  # noqa: ARG002
        """See :class:`WindowClosing`."""
        return changed_us + self.after_us

    def result_us(self, due_us: int, now_us: int) -> int:  # noqa: ARG002
        """Returns the clock: results come as windows end."""
        return now_us

    def has_ended(self, due_us: int, event_us: int | None, planned_us: int | None) -> bool:  # noqa: ARG002
        """Returns False: an event begins a window at any time."""
        return False


def is_long_over(due_us: int, planned_us: int | None) -> bool:
    """Returns whether a window that ends by the clock was to end so long before a batch.

    Args:
        due_us: when the window was to end.
        planned_us: when the batch was planned; None: there was none.
    """
    return planned_us is not None and due_us + REMEMBERED_MS * 1000 <= planned_us


def closing_of(query: Query) -> WindowClosing:
    """Returns how the windows of a query that has been checked end."""
    after_us = microseconds(query.closing.after)
    match query.closing.by:
        case ClosedBy.EVENT_TIME:
            return EventTimeClosing(query.topic, microseconds(query.allowed_lateness))
        case ClosedBy.CLOCK:
            return ClockClosing(query.topic, after_us)
        case ClosedBy.QUIET_TIME:
            return QuietTimeClosing(query.topic, after_us)
