"""Views of `list` and `accept` of all kinds of links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.markup import escape

from headrace.cli.screen import Screen, table
from headrace.cli.view import view
from headrace.links.accepted import AcceptedLoss
from headrace.links.standing import Standing


@dataclass(frozen=True)
class LinkStandings:
    """How far the links of a kind have come.

    Attributes:
        kind: of the links.
        standings: of all of the project.
    """

    kind: str
    standings: tuple[Standing, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the standings below the name of the kind."""
        return {f"{self.kind}s": self.standings}


@view.register
def _standings(result: LinkStandings, screen: Screen) -> None:
    titles = [result.kind]
    for standing in result.standings[:1]:
        titles += [*standing.details, *(("group", "members") if standing.group else ())]
    links = table(*titles, "partitions", "lag", right=(len(titles), len(titles) + 1))
    for standing in result.standings:
        figures = (f"{len(standing.partitions):,}", f"{standing.lag:,}")
        links.add_row(*map(escape, cells_of(standing)), *figures)
    screen.out.print(links)
    show_reasons(result, screen)


def cells_of(standing: Standing) -> list[str]:
    """Returns the names of a link and of its other end, and its group with the members."""
    cells = [standing.name, *standing.details.values()]
    if standing.group is not None:
        members = ", ".join(member.name for member in standing.group.members)
        cells += [standing.group.state, members]
    return cells


def show_reasons(result: LinkStandings, screen: Screen) -> None:
    """Warns of links without an instance, and of what can't continue."""
    for standing in result.standings:
        if (
            standing.group is not None
            and not standing.group.members
            and not any(standing.unknown.values())
        ):
            screen.warning(f"{standing.name}: no instance runs")
        for reason in standing.reasons:
            screen.warning(f"{standing.name}: {reason}")


@view.register
def _accepted(accepted: AcceptedLoss, screen: Screen) -> None:
    range_, lost = accepted.range_, accepted.range_.offsets
    place = f"{range_.source.path} to {accepted.site}" if accepted.site else range_.source.path
    loss = "what was lost is not known" if lost is None else f"{lost:,} lost"
    reason = loss if accepted.counts_lost else range_.reason
    screen.line(
        f"{escape(place)} continues at offset {range_.end:,}, after {range_.start:,}: "
        f"{escape(reason)}."
    )
