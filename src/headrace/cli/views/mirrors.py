"""Views of `mirror run`, `list` and `accept`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from headrace.cli.encoding import merged
from headrace.cli.output import Live, PrintLine
from headrace.cli.screen import Screen, status_line, table
from headrace.cli.views import view
from headrace.control.mirrors import AcceptedLoss

if TYPE_CHECKING:
    from headrace.control.mirrors import MirrorStanding, Observe
    from headrace.mirror.instance import MirrorProgress


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
        for partition in standing.refused:
            screen.warning(partition.refused)


@view.register
def _accepted(accepted: AcceptedLoss, screen: Screen) -> None:
    lost = "what was lost is not known" if accepted.lost is None else f"{accepted.lost:,} lost"
    screen.line(
        f"{escape(accepted.partition)} goes on at offset {accepted.accepted_offset:,}, after "
        f"{accepted.next_offset:,}: {lost}."
    )


def _text(progress: MirrorProgress) -> str:
    figures = [
        f"{progress.copied.records:,} records copied",
        f"{len(progress.partitions):,} partitions",
    ]
    if progress.copied.loops_skipped:
        figures.append(f"{progress.copied.loops_skipped:,} records of a loop skipped")
    if progress.refused:
        figures.append(f"{len(progress.refused):,} partitions refused")
    return ", ".join(figures)


@contextmanager
def _on_screen(screen: Screen) -> Iterator[Observe]:
    with status_line(screen.err, "Waits for partitions") as show:
        last = ""

        def observe(progress: MirrorProgress) -> None:
            nonlocal last
            last = _text(progress)
            show(last)

        yield observe
    screen.line(escape(last))


@contextmanager
def _in_json(print_line: PrintLine) -> Iterator[Observe]:
    yield print_line


mirroring = Live(_on_screen, _in_json)
