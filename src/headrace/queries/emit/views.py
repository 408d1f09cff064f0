"""What `query emit` shows while it runs, and `status` of the processes that do so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group

from headrace.cli.service_progress import instances, live_figures
from headrace.service.status import State

if TYPE_CHECKING:
    from headrace.queries.emit.status import EmitterStatus


def summary(statuses: Sequence[EmitterStatus]) -> Group:
    """Returns a table of processes, and below it why they wait or failed."""
    columns = {
        "queries": "queries",
        "read": "read",
        "sent": "records",
        "since commit": "lag_records",
        "restarts": "restarts",
    }
    return instances(statuses, columns, lambda _: (), "matched events")


def _text(status: EmitterStatus) -> str:
    if status.state is State.WAITING:
        return f"waits: {status.reason}"
    return (
        f"{status.queries:,} queries, {status.records:,} matched of {status.read:,} events "
        f"until the last commit; {status.lag_records:,} events since"
    )


emitting = live_figures(_text)
