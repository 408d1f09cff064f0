"""Views of `mirror run`, `list` and `accept`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.markup import escape

from headrace.cli.encoding import merged
from headrace.cli.screen import Screen, table
from headrace.cli.service_progress import instances, live_figures
from headrace.cli.view import view
from headrace.links.views import show_accepted
from headrace.service.status import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.links.mirror.standing import MirrorStanding
    from headrace.links.mirror.status import MirrorStatus


@dataclass(frozen=True)
class MirrorStandings:
    """The groups, lag and refused partitions of mirrors."""

    mirrors: tuple[MirrorStanding, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the standings, each with its lag."""
        return {"mirrors": [merged(standing, {"lag": standing.lag}) for standing in self.mirrors]}


@view.register
def _standings(result: MirrorStandings, screen: Screen) -> None:
    mirrors = table("mirror", "from", "group", "members", "partitions", "lag", right=(4, 5))
    for standing in result.mirrors:
        members = ", ".join(member.name for member in standing.group.members)
        cells = (standing.mirror, standing.source, standing.group.state, members)
        figures = (f"{len(standing.partitions):,}", f"{standing.lag:,}")
        mirrors.add_row(*map(escape, cells), *figures)
    screen.out.print(mirrors)
    for standing in result.mirrors:
        if standing.unreachable:
            screen.warning(f"{standing.mirror}: {standing.unreachable}")
        elif not standing.group.members:
            screen.warning(f"{standing.mirror}: no instance runs")
        for partition in standing.refused:
            screen.warning(partition.refused)


view.register(show_accepted)


def summary(statuses: Sequence[MirrorStatus]) -> Group:
    """Returns a table of instances, and below it why they failed or refuse partitions."""
    columns = {
        "records": "records",
        "partitions": "partitions",
        "lag": "lag_records",
        "refused": "refused_partitions",
        "restarts": "restarts",
    }
    return instances(statuses, columns, lambda status: status.refused.values())


def _text(status: MirrorStatus) -> str:
    figures = [
        f"{status.records:,} records copied",
        f"{status.partitions:,} partitions",
        f"lag {status.lag_records:,}",
    ]
    if status.state is State.WAITING:
        figures.append(f"waits: {status.reason}")
    if status.loops_skipped:
        figures.append(f"{status.loops_skipped:,} records of a loop skipped")
    if status.refused:
        figures.append(f"{status.refused_partitions:,} partitions refused")
    return ", ".join(figures)


mirroring = live_figures(_text)
