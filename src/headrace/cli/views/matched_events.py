"""What `query emit` shows while it runs, and `status` of the processes that do so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.markup import escape

from headrace.cli.screen import table
from headrace.cli.views.transfers import live_figures
from headrace.service.status import State

if TYPE_CHECKING:
    from headrace.queries.matched_events.status import EmitterStatus


def summary(statuses: Sequence[EmitterStatus]) -> Group:
    """Returns a table of processes, and below it why they wait or failed."""
    titles = ("queries", "read", "sent", "since commit", "restarts")
    processes = table("matched events", "instance", "state", *titles, right=(3, 4, 5, 6, 7))
    for status in statuses:
        names = (status.name, status.instance, str(status.state))
        figures = (status.queries, status.read, status.records, status.lag_records, status.restarts)
        processes.add_row(*map(escape, names), *(f"{figure:,}" for figure in figures))
    reasons = [f"[dim]{escape(f'{s.name}: {s.reason}')}" for s in statuses if s.reason]
    return Group(processes, *reasons)


def _text(status: EmitterStatus) -> str:
    if status.state is State.WAITING:
        return f"waits: {status.reason}"
    return (
        f"{status.queries:,} queries, {status.records:,} matched of {status.read:,} events "
        f"until the last commit; {status.lag_records:,} events since"
    )


emitting = live_figures(_text)
