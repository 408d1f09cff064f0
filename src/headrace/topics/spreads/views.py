"""View of `topics spread`."""

from __future__ import annotations

from rich.markup import escape

from headrace.cli.screen import Screen, safe, table
from headrace.cli.view import view
from headrace.topics.spreads.report import SpreadReport

_MAX_PARTITIONS = 20
_WHOLE = 1.0


@view.register
def _spread(report: SpreadReport, screen: Screen) -> None:
    screen.line(
        f"[bold]{escape(report.topic)}[/]: {report.records:,} records ({report.bytes:,} bytes) "
        f"since {report.records_since:%Y-%m-%d %H:%M:%S UTC}, {report.accounts:,} accounts in "
        f"{report.windows:,} windows; version {report.version} of its spreads"
    )
    _remarks(report, screen)
    _partitions(report, screen)
    screen.line(
        f"hottest partition: {report.hottest:.2f} times the mean; with the newest spreads "
        f"{report.hottest_expected:.2f}, with the changes {report.hottest_proposed:.2f}"
    )
    if not report.changes:
        screen.line("no account changes")
        return
    changes = table("account", "share", "partitions", "to", "moved", right=(1, 2, 3, 4))
    for change in report.changes:
        moved = change.moved / report.bytes if report.bytes else 0.0
        cells = (f"{change.share:.1%}", str(change.width), str(change.to), f"{moved:.1%}")
        changes.add_row(safe(change.account), *cells)
    screen.out.print(changes)
    screen.line(_outcome(report))


def _remarks(report: SpreadReport, screen: Screen) -> None:
    if report.read_fraction < _WHOLE:
        screen.warning(
            f"{report.read_fraction:.2%} of the records since then were read, the newest of each "
            "partition: --limit reads more"
        )
    if report.unknown_records:
        screen.warning(
            f"{report.unknown_records:,} records have no account or can't be read: they count for "
            "their partition alone"
        )
    widest = max((change.to for change in report.changes), default=1)
    if report.windows < widest:
        screen.warning(
            f"a window of an account lies in one partition: {report.windows:,} windows show less "
            "than a spread does in time; --last reads more of them"
        )


def _partitions(report: SpreadReport, screen: Screen) -> None:
    loads = sorted(report.partitions, key=lambda load: (-load.bytes, load.partition))
    shown = table("partition", "records", "bytes", "now", "changed", right=(0, 1, 2, 3, 4))
    for load in loads[:_MAX_PARTITIONS]:
        figures = (load.partition, load.records, load.bytes, load.expected, load.proposed)
        shown.add_row(*(f"{figure:,}" for figure in figures))
    screen.out.print(shown)
    if len(loads) > _MAX_PARTITIONS:
        rest = len(loads) - _MAX_PARTITIONS
        screen.line(f"[dim]and {rest:,} with less; --json lists all")


def _outcome(report: SpreadReport) -> str:
    since = report.counts_from
    if since is None:
        return "The topic declares no lead: declare these spreads, or ByAccount(lead=...)."
    begin = f"{since:%Y-%m-%d %H:%M:%S UTC}"
    if report.applied:
        return f"[green]applied[/] as version {report.version}: counts for windows since {begin}"
    return f"Not applied: with --apply they count for windows since about {begin}."
