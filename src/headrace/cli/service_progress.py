"""What instances show while they run, and in `status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Group
from rich.markup import escape

from headrace.cli.output import Live, PrintLine
from headrace.cli.screen import Screen, status_line, table, with_remarks
from headrace.service.status import InstanceStatus

Shown = TypeVar("Shown")
Status = TypeVar("Status", bound=InstanceStatus)


def live_figures(text: Callable[[Shown], str]) -> Live[Callable[[Shown], None]]:
    """Returns a view of an instance: a line of figures, which stays at its end; or JSON.

    Args:
        text: gives the line of a status.
    """

    @contextmanager
    def on_screen(screen: Screen) -> Iterator[Callable[[Shown], None]]:
        with status_line(screen.err, "Waits for partitions") as show:
            last = ""

            def observe(status: Shown) -> None:
                nonlocal last
                last = text(status)
                show(last)

            yield observe
        screen.line(escape(last))

    @contextmanager
    def in_json(print_line: PrintLine) -> Iterator[Callable[[Shown], None]]:
        yield print_line

    return Live(on_screen, in_json)


def remark_names(statuses: Sequence[InstanceStatus]) -> list[str]:
    """Returns what remarks begin with: the name, and the instance where a name has several."""
    names = Counter(status.name for status in statuses)
    return [
        status.name if names[status.name] == 1 else f"{status.name} ({status.instance})"
        for status in statuses
    ]


def instances(
    statuses: Sequence[Status],
    columns: Mapping[str, str],
    remarks: Callable[[Status], Iterable[str]],
    title: str = "",
) -> Group:
    """Returns a table of instances of a kind, and below it what they have to say.

    Counters that are no columns are listed below it, those above 0.

    Args:
        statuses: at least one.
        columns: the figures in columns, by their titles.
        remarks: returns what else an instance has to say.
        title: of the names; empty: the kind of the instances.
    """
    titles = (title or statuses[0].kind, "instance", "state", *columns)
    shown = table(*titles, right=tuple(range(3, len(titles))))
    lines: list[tuple[str, str]] = []
    for name, status in zip(remark_names(statuses), statuses, strict=True):
        names = (status.name, status.instance, str(status.state))
        figures = (f"{getattr(status, figure):,}" for figure in columns.values())
        shown.add_row(*map(escape, names), *figures)
        counts = ", ".join(
            f"{count:,} {metric.name.replace('_', ' ')}"
            for metric in status.metrics
            if metric.is_counter and metric.name not in columns.values()
            if (count := getattr(status, metric.name))
        )
        said = filter(None, (status.reason, *remarks(status), counts))
        lines += ((name, remark) for remark in said)
    return with_remarks(shown, lines)
