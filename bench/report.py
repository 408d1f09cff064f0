"""Results as a table, in the terminal and on docs/benchmarks.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.results import Row

PAGE = Path(__file__).resolve().parents[1] / "docs/benchmarks.md"


def table(benchmark: str, rows: Iterable[Row]) -> Table:
    """The medians, and the range where there were rounds.

    A column a system and a line a metric; where systems were measured with several numbers of
    threads or lanes, a line a system and number, and a column a metric.
    """
    (first, *others), *lines = _crossed(list(rows))
    found = Table(title=benchmark)
    found.add_column(first)
    for header in others:
        found.add_column(header, justify="right")
    for line in lines:
        found.add_row(*line)
    return found


def write_page(document: Mapping[str, Any], page: Path = PAGE) -> None:
    """Puts the tables of ``document`` between the page's markers, one pair a benchmark.

    Raises:
        ValueError: the page has no markers for a benchmark.
    """
    text = page.read_text()
    rows = [Row(**one) for one in document["rows"]]
    for benchmark in dict.fromkeys(one.benchmark for one in rows):
        own = [one for one in rows if one.benchmark == benchmark]
        text = _between_markers(text, benchmark, markdown(own, document, benchmark))
    page.write_text(text)


def markdown(rows: Iterable[Row], document: Mapping[str, Any], benchmark: str) -> str:
    """The table of one benchmark, and under it where it was measured."""
    settings = document["settings"][benchmark]
    header, *lines = _crossed(list(rows))
    rule = ["---", *("---:" for _ in header[1:])]
    if guarantees := settings.get("guarantees"):
        header, rule = [*header, "delivery"], [*rule, "---"]
        lines = [[*line, guarantees.get(line[0], "")] for line in lines]
    cells = "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines])
    gaps = [f"{name}: {why}" for name, why in settings.get("without_figures", {}).items()]
    return "\n\n".join((cells, *gaps, _context(document, benchmark)))


def _context(document: Mapping[str, Any], benchmark: str) -> str:
    machine, settings = document["machine"][benchmark], document["settings"][benchmark]
    installed = {**document["versions"][benchmark], **settings.get("rivals", {})}
    versions = ", ".join(f"{name} {version}" for name, version in installed.items())
    return (
        f"{settings['work']}, {settings['rounds']} round(s), on {machine['cores']} "
        f"cores ({machine['processor']}), {machine['memory_gib']} GiB, Linux "
        f"{machine['kernel']}; {versions}."
    )


def _crossed(rows: Sequence[Row]) -> list[list[str]]:
    """A header, and the lines below it."""
    return _by_size(rows) if any(one.size for one in rows) else _by_metric(rows)


def _by_metric(rows: Sequence[Row]) -> list[list[str]]:
    found = {(one.metric, one.system): one for one in rows}
    systems = list(dict.fromkeys(one.system for one in rows))
    lines = [
        [name, *(_figure(found.get((metric, system))) for system in systems)]
        for metric, name in _metrics(rows).items()
    ]
    return [["metric", *systems], *lines]


def _by_size(rows: Sequence[Row]) -> list[list[str]]:
    found = {(one.system, one.size, one.metric): one for one in rows}
    metrics = _metrics(rows)
    lines = [
        [system, str(size), *(_figure(found.get((system, size, name))) for name in metrics)]
        for system, size in dict.fromkeys((one.system, one.size) for one in rows)
    ]
    kind = "threads" if rows[0].threads else "lanes"
    return [["system", kind, *metrics.values()], *lines]


def _metrics(rows: Sequence[Row]) -> dict[str, str]:
    return {one.metric: f"`{one.metric}` ({one.unit})" for one in rows}


def _figure(row: Row | None) -> str:
    if row is None:
        return ""
    median, low, high = (_number(one) for one in (row.median, row.low, row.high))
    return median if low == high else f"{median} ({low} to {high})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2f}"


def _between_markers(text: str, benchmark: str, content: str) -> str:
    begin, end = f"<!-- {benchmark}: begin -->", f"<!-- {benchmark}: end -->"
    found = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
    if not found.search(text):
        raise ValueError(f"the page has no markers for {benchmark}")
    return found.sub(lambda _: f"{begin}\n{content}\n{end}", text)
