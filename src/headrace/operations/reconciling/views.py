"""The view of `reconcile`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.markup import escape

from headrace.cli.screen import Screen, table
from headrace.cli.view import view
from headrace.ledger.balance import Balance, BookLine, Totals, WindowBook, totals_of
from headrace.ledger.windows import WindowState
from headrace.operations.reconciling.reconciliation import Reconciliation

MAX_BALANCED = 24
"""Of balanced windows, the newest are shown; others only where they do not balance."""

_STYLES: dict[str, str] = {
    WindowState.BALANCED: "green",
    WindowState.UNBALANCED: "bold red",
    WindowState.UNKNOWN: "yellow",
}


@view.register
def _reconciled(result: Reconciliation, screen: Screen) -> None:
    for balances in result.by_title:
        _show(balances, screen)


def _show(balances: Sequence[Balance], screen: Screen) -> None:
    """Shows balances of one title, as one table."""
    book, title = balances[0].book, f"[bold]{escape(balances[0].title)}[/]"
    columns = book.columns()
    if book.unknown and not columns:
        screen.line(f"{title}: {_styled(WindowState.UNKNOWN)}, {escape(book.unknown)}")
        return
    seconds = book.window_seconds if isinstance(book, WindowBook) else 0
    screen.line(f"{title}, windows of {seconds} s" if seconds else title)
    for remark in (remark for balance in balances for remark in balance.extras):
        where = f" at {remark.hop}" if remark.hop else ""
        kind = f"{_styled(remark.kind)}{where}: " if remark.kind else ""
        screen.line(f"  {kind}{escape(remark.text)}")
    if columns:
        lines = [line for balance in balances for line in balance.lines]
        titles = ("window" if seconds else "topic", "state", *columns, "")
        _show_lines(lines, titles, totals_of(balances), screen)


def _show_lines(
    lines: Sequence[BookLine], titles: Sequence[str], totals: Totals | None, screen: Screen
) -> None:
    balanced = [line for line in lines if line.state is WindowState.BALANCED]
    # By identity: lines of several books may be equal, and only these are hidden.
    hidden = set(map(id, balanced[:-MAX_BALANCED])) if titles[0] == "window" else set()
    shown = table(*titles, right=tuple(range(2, len(titles) - 1)))
    for line in lines:
        if id(line) not in hidden:
            figures = _shown(line.figures)
            detail = "; ".join(filter(None, (*map(str, line.differences), line.unknown)))
            shown.add_row(escape(line.name), _styled(line.state), *figures, escape(detail))
    if totals is not None and totals.lines > 1:
        what = f"total, {totals.lines:,} {titles[0]}s"
        shown.add_row(what, "", *_shown(totals.figures.values()), "", style="bold")
    screen.out.print(shown, highlight=False)
    if hidden:
        screen.line(f"{len(hidden)} earlier windows are balanced.")


def _shown(figures: Iterable[int | None]) -> Iterator[str]:
    return ("" if figure is None else str(figure) for figure in figures)


def _styled(kind: str) -> str:
    return f"[{_STYLES.get(kind, 'default')}]{kind}[/]"
