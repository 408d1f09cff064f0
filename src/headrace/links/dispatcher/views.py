"""Views of `dispatcher run`, `list` and `accept`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.markup import escape

import headrace.links.views  # noqa: F401  registers the views of `list` and `accept`
from headrace.cli.screen import table, with_remarks
from headrace.cli.service_progress import live_figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.links.dispatcher.status import DispatcherStatus


def summary(statuses: Sequence[DispatcherStatus]) -> Group:
    """Returns a table of targets, and below it why they wait, or refuse partitions."""
    titles = ("dispatcher", "instance", "to", "state", "records", "lag", "refused", "restarts")
    dispatchers = table(*titles, right=(4, 5, 6, 7))
    remarks: list[tuple[str, str]] = []
    for status in statuses:
        for site, route in status.sites.items():
            figures = (route.records, route.lag_records, len(route.refused), route.restarts)
            names = (status.name, status.instance, site, str(route.state))
            dispatchers.add_row(*map(escape, names), *(f"{figure:,}" for figure in figures))
            reasons = filter(None, (route.reason, *route.refused.values()))
            remarks += [(f"{status.name} to {site}", why) for why in reasons]
        if status.reason:
            remarks.append((status.name, status.reason))
    return with_remarks(dispatchers, remarks)


@live_figures
def dispatching(status: DispatcherStatus) -> str:
    """Returns the line of figures of `dispatcher run`."""
    figures = [
        f"{status.records:,} of {status.read:,} records sent",
        f"{len(status.sites)} sites",
        f"lag {status.lag_records:,} since the last commit",
    ]
    figures += [
        f"{site} {route.state.value}" for site, route in status.sites.items() if route.waiting
    ]
    if status.refused:
        figures.append(f"{status.refused_partitions:,} partitions refused")
    return ", ".join(figures)
