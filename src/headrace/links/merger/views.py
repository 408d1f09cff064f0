"""Views of `merger run`, `list` and `accept`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group
from rich.markup import escape

from headrace.cli.screen import Screen, table
from headrace.cli.service_progress import instances, live_figures
from headrace.cli.view import view
from headrace.events.times import time_of
from headrace.links.views import LinkStandings, cells_of, show_reasons

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.links.merger.status import MergerStatus


class MergerStandings(LinkStandings):
    """How far mergers have come, which are shown by partition."""


@view.register
def _standings(result: MergerStandings, screen: Screen) -> None:
    titles = ("merger", "target", "group", "members", "partition", "lag", "sorted to")
    mergers = table(*titles, right=(5,))
    for standing in result.standings:
        cells = cells_of(standing)
        for partition in standing.partitions:
            lag = "?" if partition.lag is None else f"{partition.lag:,}"
            sorted_to = _time(partition.details["sorted_to_ms"])
            mergers.add_row(*map(escape, (*cells, partition.partition)), lag, sorted_to)
            cells = [""] * len(cells)
    screen.out.print(mergers)
    show_reasons(result, screen)


def _time(time_ms: int | None) -> str:
    if time_ms is None:
        return "not known yet"
    return time_of(time_ms * 1000).isoformat(timespec="milliseconds")


def summary(statuses: Sequence[MergerStatus]) -> Group:
    """Returns a table of instances, and below it what they wait for, and why they failed."""
    columns = {
        "records": "records",
        "late": "late",
        "lag": "lag_records",
        "waiting": "waiting_partitions",
        "idle": "idle_partitions",
        "refused": "refused_partitions",
    }
    return instances(statuses, columns, _remarks)


def _remarks(status: MergerStatus) -> Iterator[str]:
    yield from status.refused.values()
    for partition, sources in status.waits_for.items():
        if sources:
            since = _time(status.sorted_to_ms.get(partition))
            yield f"{partition} is sorted to {since}, and waits for {', '.join(sources)}"
    if status.idle:
        yield f"not waited for, since silent: {', '.join(status.idle)}"


@live_figures
def merging(status: MergerStatus) -> str:
    """Returns the line of figures of `merger run`."""
    figures = [
        f"{status.records:,} records merged",
        f"{status.late:,} late",
        f"lag {status.lag_records:,}",
    ]
    if status.waiting_partitions:
        figures.append(f"{status.waiting_partitions:,} partitions wait")
    if status.idle:
        figures.append(f"{status.idle_partitions:,} idle")
    if status.refused:
        figures.append(f"{status.refused_partitions:,} partitions refused")
    return ", ".join(figures)
