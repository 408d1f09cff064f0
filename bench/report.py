"""Results as a table, in the terminal and on docs/benchmarks.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.results import Row

PAGE = Path(__file__).resolve().parents[1] / "docs/benchmarks.md"


def table(benchmark: str, rows: Iterable[Row]) -> Table:
    """A column a system, a line a metric: the median, and the range where there were rounds."""
    systems, lines = _crossed(rows)
    found = Table(title=benchmark)
    found.add_column("metric")
    for system in systems:
        found.add_column(system, justify="right")
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
    systems, lines = _crossed(rows)
    header = [["metric", *systems], ["---", *("---:" for _ in systems)]]
    cells = "\n".join("| " + " | ".join(line) + " |" for line in [*header, *lines])
    return f"{cells}\n\n{_context(document, benchmark)}"


def _context(document: Mapping[str, Any], benchmark: str) -> str:
    machine, settings = document["machine"], document["settings"][benchmark]
    installed = {**document["versions"], **settings.get("rivals", {})}
    versions = ", ".join(f"{name} {version}" for name, version in installed.items())
    return (
        f"{settings['work']}, {settings['rounds']} round(s), on {machine['cores']} "
        f"cores ({machine['processor']}), {machine['memory_gib']} GiB, Linux "
        f"{machine['kernel']}; {versions}."
    )


def _crossed(rows: Iterable[Row]) -> tuple[list[str], list[list[str]]]:
    """The systems, and a line a metric with its unit and the figure of each of them."""
    found = {(one.metric, one.system): one for one in rows}
    systems = list(dict.fromkeys(system for _, system in found))
    units = {one.metric: one.unit for one in found.values()}
    return systems, [
        [f"`{metric}` ({unit})", *(_figure(found.get((metric, system))) for system in systems)]
        for metric, unit in units.items()
    ]


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
