"""The view of `sites check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.markup import escape

from headrace.cli.screen import Screen, table
from headrace.cli.view import view

if TYPE_CHECKING:
    from headrace.links.sites.checks import LinkCheck


@dataclass(frozen=True)
class LinkChecks:
    """What is wrong between the topics of sites, by link."""

    links: tuple[LinkCheck, ...]


@view.register
def _checks(result: LinkChecks, screen: Screen) -> None:
    if not result.links:
        screen.line("No link between sites is declared: there is nothing to compare.")
        return
    links = table("by", "from", "to", "faults", right=(3,))
    for checked in result.links:
        link = checked.link
        places = (f"{link.source_site}: {link.source}", f"{link.target_site}: {link.target}")
        faults = "not known" if checked.unreachable else str(len(checked.faults))
        links.add_row(escape(link.by), *map(escape, places), faults)
    screen.out.print(links)
    for checked in result.links:
        if checked.unreachable:
            screen.warning(f"{checked.link}: site {checked.unreachable} does not respond")
        for fault in checked.faults:
            screen.warning(f"{checked.link.by}: {fault.message} ({fault.remedy})")
