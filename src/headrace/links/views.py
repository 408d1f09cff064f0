"""What `accept` of mirrors, mergers and dispatchers shows; their views register it."""

from __future__ import annotations

from rich.markup import escape

from headrace.cli.screen import Screen
from headrace.links.accepted_ranges import AcceptedLoss


def show_accepted(accepted: AcceptedLoss, screen: Screen) -> None:
    """Shows where a partition continues, and what was lost."""
    place = f"{accepted.partition} to {accepted.site}" if accepted.site else accepted.partition
    goes_on = "is merged on" if accepted.kind == "merger" else "goes on"
    lost = "what was lost is not known" if accepted.lost is None else f"{accepted.lost:,} lost"
    screen.line(
        f"{escape(place)} {goes_on} at offset {accepted.accepted_offset:,}, after "
        f"{accepted.next_offset:,}: {escape(accepted.reason) or lost}."
    )
