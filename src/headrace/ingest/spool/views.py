"""Views of `spool list`, `replay` and `drop`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.markup import escape

from headrace.cli.screen import Screen, table
from headrace.cli.view import view

if TYPE_CHECKING:
    from headrace.ingest.spool.operations import SpoolChange, TopicSpool


@dataclass(frozen=True)
class SpoolList:
    """What ingest keeps on this host."""

    spools: tuple[TopicSpool, ...]


@dataclass(frozen=True)
class SpoolReplay:
    """Quarantined events that were put back, or would be."""

    dry_run: bool
    replayed: tuple[SpoolChange, ...]


@dataclass(frozen=True)
class SpoolDrop:
    """Events that were removed from a spool, or would be."""

    dry_run: bool
    dropped: tuple[SpoolChange, ...]


@view.register
def _list(result: SpoolList, screen: Screen) -> None:
    if not result.spools:
        screen.line("No topic has a spool on this host: no events wait, and none are quarantined.")
        return
    spools = table("topic", "waiting", "bytes", "of", "oldest", "quarantined", "lost")
    for spool in result.spools:
        age = f"{spool.oldest_seconds:.0f} s" if spool.events else "-"
        figures = (spool.events, spool.bytes, spool.budget_bytes, age)
        losses = (len(spool.quarantined), spool.missing)
        spools.add_row(escape(spool.topic), *map(str, figures + losses))
    screen.out.print(spools)
    for spool in result.spools:
        for file in spool.quarantined:
            reasons = ", ".join(f"{text} ({count})" for text, count in file.reasons.items())
            text = f"{spool.topic}: {file.name}: {file.records} event(s) {reasons}".rstrip()
            screen.line(escape(text))


@view.register
def _replayed(result: SpoolReplay, screen: Screen) -> None:
    _changes(screen, "would be put back" if result.dry_run else "put back", result.replayed)


@view.register
def _dropped(result: SpoolDrop, screen: Screen) -> None:
    _changes(screen, "would be dropped" if result.dry_run else "dropped", result.dropped)


def _changes(screen: Screen, verb: str, changes: tuple[SpoolChange, ...]) -> None:
    for change in changes:
        where = f"of {change.file}" if change.file else "that waited"
        text = f"{change.events} event(s) {where} {verb}."
        if change.failure != "":
            text = f"{change.file} stays: {change.failure}"
        screen.line(escape(text))
    if not changes:
        screen.out.print("Nothing was quarantined.")
