"""Views of `topics change`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.markup import escape

from headrace.cli.screen import Screen, safe, table
from headrace.cli.service_progress import live_figures
from headrace.cli.view import view
from headrace.links.change.comparison import ChangeCheck
from headrace.links.change.groups import GroupMove
from headrace.links.change.standing import ChangeStanding
from headrace.links.copying.status import CopyStatus
from headrace.links.copying.views import copy_figures
from headrace.service.status import State

_SHOWN = 20


@dataclass(frozen=True)
class GroupMoves:
    """The offsets at which groups start, for each that was named."""

    moves: tuple[GroupMove, ...]


@live_figures
def changing(status: CopyStatus) -> str:
    """Returns the line of figures of a copy, and what it waits for."""
    figures = copy_figures(status)
    is_said = not status.reason or status.state is State.WAITING
    return figures if is_said else f"{figures}, waits: {status.reason}"


@view.register
def _standing(standing: ChangeStanding, screen: Screen) -> None:
    before, after = standing.partitions
    key, new_key = (name or "none" for name in standing.keys)
    screen.line(
        f"[bold]{escape(standing.topic)}[/] to [bold]{escape(standing.to)}[/]: {before:,} to "
        f"{after:,} partitions, key {escape(key)} to {escape(new_key)}"
    )
    if not standing.keeps_order:
        screen.warning(
            "events of a key keep the order that they have within a partition of "
            f"{standing.topic}, where one of {standing.to} gets them; several may have them"
        )
    copied = table("partition", "first", "copied", "end", "behind", right=(0, 1, 2, 3, 4))
    for at in sorted(standing.copied, key=lambda at: (-at.behind, at.partition))[:_SHOWN]:
        done = "none" if at.copied is None else f"{at.copied:,}"
        copied.add_row(f"{at.partition:,}", f"{at.first:,}", done, f"{at.end:,}", f"{at.behind:,}")
    screen.out.print(copied)
    if len(standing.copied) > _SHOWN:
        rest = len(standing.copied) - _SHOWN
        screen.line(f"[dim]and {rest:,} that are less behind; --json lists all")
    for line in _users(standing):
        screen.line(line)
    screen.line(_next(standing))


def _users(standing: ChangeStanding) -> Iterator[str]:
    for writer in standing.writers:
        yield f"writes {escape(standing.topic)}: {escape(writer)}"
    for reader in standing.readers:
        behind = "nothing committed" if reader.behind is None else f"{reader.behind:,} behind"
        moved = ", moved" if reader.is_moved else ""
        waiting = f", {reader.waiting:,} records in retry topics" if reader.waiting else ""
        yield (
            f"reads {escape(standing.topic)}: {escape(reader.kind)} {escape(reader.name)}, group "
            f"{safe(reader.group)}, {reader.members:,} members, {behind}{waiting}{moved}"
        )


def _next(standing: ChangeStanding) -> str:
    command = f"headrace topics change {escape(standing.topic)} {escape(standing.to)}"
    if standing.behind and standing.has_own_records:
        return (
            f"[yellow]{standing.behind:,} offsets were written to {escape(standing.topic)} late: "
            f"{escape(standing.to)} has records of its own. Stop what writes them."
        )
    if standing.behind:
        return f"{standing.behind:,} offsets are not copied: {command} --copy"
    return f"[green]copied to the end[/]; {command} --check compares all records"


@view.register
def _check(check: ChangeCheck, screen: Screen) -> None:
    different = [part for part in check.partitions if not part.is_equal]
    screen.line(
        f"[bold]{escape(check.topic)}[/] to [bold]{escape(check.to)}[/]: {check.records:,} "
        f"records, {check.copies:,} copies; {check.behind:,} offsets are not copied; "
        f"{check.own_records:,} records are no copies"
    )
    if different:
        shown = table("partition", "offsets", "records", "copies", right=(0, 2, 3))
        for part in different[:_SHOWN]:
            offsets = f"{part.start:,} to {part.end - 1:,}"
            shown.add_row(f"{part.partition:,}", offsets, f"{part.records:,}", f"{part.copies:,}")
        screen.out.print(shown)
        screen.warning(f"{len(different):,} partitions differ")
    for line in _remarks(check):
        screen.warning(line)
    if check.is_whole:
        screen.line("[green]equal[/]: each record is there once, in its order")


def _remarks(check: ChangeCheck) -> Iterator[str]:
    if check.unknown:
        yield check.unknown
    if check.out_of_order:
        yield f"{check.out_of_order:,} copies are repeated, or behind later records"
    if check.behind_own:
        yield f"{check.behind_own:,} copies are behind records that {check.to} has of its own"
    if check.unreadable:
        yield f"{check.unreadable:,} records are no events, and keep their keys"


@view.register
def _moves(result: GroupMoves, screen: Screen) -> None:
    for move in result.moves:
        starts = table("partition", "starts at", right=(1,))
        for place, offset in move.starts.items():
            starts.add_row(safe(place), f"{offset:,}")
        screen.out.print(starts)
        done = "[green]moved[/]" if move.is_moved else "not moved"
        screen.line(f"{safe(move.group)}: {done}, {move.unread:,} records to read")
