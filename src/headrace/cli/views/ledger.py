"""Views of `reconcile`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape

from headrace.cli.screen import Screen, table
from headrace.cli.views import view
from headrace.control.link_balances import LinkBalance
from headrace.control.reconcile import PipelineBalance, Reconciliation, ReprocessedTimes
from headrace.ledger.windows import Imbalance, WindowBalance, WindowState
from headrace.link_ledger.accepted import AcceptedRange
from headrace.pipelines.ledger.breaks import Break

if TYPE_CHECKING:
    from headrace.control.matched_event_balances import MatchedEventsBalance
    from headrace.control.query_balances import QueryBalance

MAX_BALANCED = 24
"""Of balanced windows, the newest are shown; others only where they do not balance."""

QUERY_COLUMNS = ("matched", "in results", "waiting", "in open windows", "late", "faulty")
"""Titles of the figures of standing queries: what ``matched`` lacks, the last column says."""

_STYLES = {
    WindowState.BALANCED: "green",
    WindowState.UNBALANCED: "bold red",
    WindowState.UNKNOWN: "yellow",
}


@view.register
def _reconciled(result: Reconciliation, screen: Screen) -> None:
    for pipeline in result.pipelines:
        _show(pipeline, screen)
    for link in result.links:
        _show_link(link, screen)
    for name in dict.fromkeys(balance.queries for balance in result.queries):
        screen.line(f"[bold]standing queries {escape(name)}[/]")
        _show_queries([balance for balance in result.queries if balance.queries == name], screen)
        emitted = [balance for balance in result.matched_events if balance.queries == name]
        if emitted:
            screen.line(f"[bold]matched events of {escape(name)}[/]")
            _show_matched_events(emitted, screen)


def _show(balance: PipelineBalance, screen: Screen) -> None:
    name = f"[bold]{escape(balance.pipeline)}[/]"
    if balance.unknown:
        screen.line(f"{name}: [yellow]unknown[/], {escape(balance.unknown)}")
        return
    screen.line(f"{name}, windows of {balance.window_seconds} s")
    for gap in balance.breaks:
        screen.line(f"  [bold red]unbalanced[/] at {gap.hop}: {escape(_break(gap))}")
    for reason in balance.uncounted:
        screen.line(f"  [yellow]unknown[/] at offsets: {escape(reason)}")
    for text in _imbalances(balance.letters.differences):
        screen.line(f"  [bold red]unbalanced[/]: {escape(text)}")
    if balance.letters.unknown:
        screen.line(f"  [yellow]unknown[/]: {escape(balance.letters.unknown)}")
    for sink in balance.not_recounted:
        screen.line(f"  not recounted: {escape(sink)} keeps no rows that can be counted")
    for times in balance.reprocessed:
        screen.line(f"  reprocessed: {_reprocessed(times)}")
    tables = {"rows": "in table", "side_rows": "in side table"}
    _show_windows(balance.windows, tables, "no event time", screen)


def _show_link(link: LinkBalance, screen: Screen) -> None:
    ends = f"{escape(link.source)} to {escape(link.target)}"
    name = f"[bold]{link.kind} {escape(link.name)}[/]: {ends}"
    if link.unknown:
        screen.line(f"{name}: [yellow]unknown[/], {escape(link.unknown)}")
        return
    screen.line(f"{name}, windows of {link.window_seconds} s")
    for range_ in link.left_out:
        screen.line(f"  left out: {escape(_left_out(range_))}")
    if link.windows:
        _show_windows(link.windows, {"rows": "in target"}, "no time", screen)
    else:
        screen.line("  no windows")


def _show_queries(balances: Sequence[QueryBalance], screen: Screen) -> None:
    figures_at = tuple(range(2, 2 + len(QUERY_COLUMNS)))
    topics = table("topic", "state", *QUERY_COLUMNS, "", right=figures_at)
    for balance in balances:
        counts = balance.counts
        ended = (balance.in_results, balance.waiting)
        figures = (counts.sent, *ended, counts.open, counts.late, counts.faulty)
        shown = ["" if figure is None else str(figure) for figure in figures]
        detail = "; ".join(_imbalances(balance.differences)) or balance.unknown
        topics.add_row(escape(balance.topic), _styled(balance.state), *shown, escape(detail))
    screen.out.print(topics, highlight=False)


def _show_matched_events(balances: Sequence[MatchedEventsBalance], screen: Screen) -> None:
    titles = ("topic", "state", "events", "matches", "in topic", "lag", "skipped", "")
    topics = table(*titles, right=(2, 3, 4, 5, 6))
    for balance in balances:
        figures = (balance.events, balance.matches, balance.in_topic, balance.lag, balance.skipped)
        texts = [*_imbalances(balance.differences), balance.unknown]
        detail = "; ".join(filter(None, texts))
        cells = (escape(balance.topic), _styled(balance.state), *map(str, figures))
        topics.add_row(*cells, escape(detail))
    screen.out.print(topics, highlight=False)


def _styled(state: WindowState) -> str:
    return f"[{_STYLES.get(state, 'default')}]{state}[/]"


def _show_windows(
    shown: Sequence[WindowBalance], tables: Mapping[str, str], no_time: str, screen: Screen
) -> None:
    """Shows windows, with the columns of those tables whose rows were counted."""
    balanced = [window for window in shown if window.state is WindowState.BALANCED]
    hidden = set(map(id, balanced[:-MAX_BALANCED]))
    fates = list(dict.fromkeys(fate for window in shown for fate in window.fates))
    counted = [
        name for name in tables if any(getattr(window, name) is not None for window in shown)
    ]
    titles = [tables[name] for name in counted]
    figures = tuple(range(2, 3 + len(fates) + len(titles)))
    windows = table("window", "state", "read", *fates, *titles, "", right=figures)
    for window in shown:
        if id(window) not in hidden:
            counts = [str(window.fates.get(fate, 0)) for fate in fates]
            numbers = [getattr(window, name) for name in counted]
            rows = ["" if number is None else str(number) for number in numbers]
            time = no_time if window.start is None else f"{window.start:%Y-%m-%d %H:%M:%S} UTC"
            cells = (time, _styled(window.state), str(window.read), *counts, *rows)
            windows.add_row(*cells, escape(_detail(window)))
    screen.out.print(windows, highlight=False)
    if hidden:
        screen.line(f"{len(hidden)} earlier windows are balanced.")


def _left_out(range_: AcceptedRange) -> str:
    source, offsets = range_.source.path, range_.offsets
    what = (
        f"what was in {source} before; it goes on at offset {range_.end:,}"
        if offsets is None
        else f"{offsets:,} offsets, {range_.start:,} to {range_.end - 1:,} of {source}"
    )
    return f"{what}, accepted {range_.accepted:%Y-%m-%d %H:%M:%S} UTC: {range_.reason}"


def _reprocessed(times: ReprocessedTimes) -> str:
    changed = f"{times.added:,} rows added, {times.removed:,} removed"
    between = f"{times.start.isoformat()} to {times.end.isoformat()}"
    return f"{times.records:,} records that came {between}: {changed}"


def _break(gap: Break) -> str:
    what = "no batch has read" if gap.is_gap else "more than one batch has read"
    return f"{what} offsets {gap.start} to {gap.end} of {gap.partition}"


def _detail(window: WindowBalance) -> str:
    return "; ".join(_imbalances(window.differences)) or window.unknown


def _imbalances(differences: Iterable[Imbalance]) -> Iterable[str]:
    for difference in differences:
        where = f" ({difference.partition})" if difference.partition else ""
        yield f"{_amount(difference)} at {difference.hop}{where}"


def _amount(difference: Imbalance) -> str:
    if difference.number:
        events = abs(difference.number)
        return f"{events} {'missing' if difference.number > 0 else 'too many'}"
    return "same number, other events" if difference.ids_differ else "same events, other sizes"
