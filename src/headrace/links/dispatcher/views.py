"""Views of `dispatcher run`, `list` and `accept`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.markup import escape

from headrace.cli.encoding import merged
from headrace.cli.screen import Screen, table
from headrace.cli.service_progress import live_figures
from headrace.cli.view import view
from headrace.links.views import show_accepted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.links.dispatcher.standing import RouteStanding
    from headrace.links.dispatcher.status import DispatcherStatus


@dataclass(frozen=True)
class RouteStandings:
    """The lag and refused partitions of dispatchers, by target."""

    dispatchers: tuple[RouteStanding, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the standings, each with its lag."""
        standings = [merged(standing, {"lag": standing.lag}) for standing in self.dispatchers]
        return {"dispatchers": standings}


@view.register
def _standings(result: RouteStandings, screen: Screen) -> None:
    routes = table("dispatcher", "to", "last instance", "partitions", "lag", right=(3, 4))
    for standing in result.dispatchers:
        names = (standing.dispatcher, standing.site, standing.instance)
        routes.add_row(*map(escape, names), f"{len(standing.partitions):,}", f"{standing.lag:,}")
    screen.out.print(routes)
    for standing in result.dispatchers:
        for reason in standing.reasons:
            screen.warning(reason)


view.register(show_accepted)


def summary(statuses: Sequence[DispatcherStatus]) -> Group:
    """Returns a table of targets, and below it why they wait, or refuse partitions."""
    titles = ("dispatcher", "instance", "to", "state", "records", "lag", "refused", "restarts")
    dispatchers = table(*titles, right=(4, 5, 6, 7))
    remarks: list[str] = []
    for status in statuses:
        for site, route in status.sites.items():
            figures = (route.records, route.lag_records, len(route.refused), route.restarts)
            names = (status.name, status.instance, site, str(route.state))
            dispatchers.add_row(*map(escape, names), *(f"{figure:,}" for figure in figures))
            reasons = filter(None, (route.reason, *route.refused.values()))
            remarks += [f"[dim]{escape(f'{status.name} to {site}: {why}')}" for why in reasons]
        if status.reason:
            remarks.append(f"[dim]{escape(f'{status.name}: {status.reason}')}")
    return Group(dispatchers, *remarks)


def _text(status: DispatcherStatus) -> str:
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


dispatching = live_figures(_text)
