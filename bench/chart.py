"""Some speeds of results.json as a chart for the README: `make chart`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from bench import results
from bench.results import Row

CHART = Path(__file__).resolve().parents[1] / "docs/images/benchmarks.svg"

_WIDTH = 760
_BAR_LEFT, _BAR_WIDTH = 200, 300
_TITLE_HEIGHT, _LINE_HEIGHT, _PANEL_GAP = 26, 20, 14
_STYLE = """\
    text { font: 13px system-ui, sans-serif; fill: #1f2328 }
    .title { font-weight: 600 } .system { text-anchor: end } .quiet { fill: #59636e }
    .page { fill: #ffffff } .headrace { fill: #0969da } .other { fill: #afb8c1 }
    .range { stroke: #1f2328; stroke-width: 1.5 }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc } .quiet { fill: #9198a1 }
      .page { fill: #0d1117 } .headrace { fill: #388bfd } .other { fill: #656c76 }
      .range { stroke: #f0f6fc }
    }"""


@dataclass(frozen=True)
class Panel:
    """The speeds of all systems in a benchmark; ``size`` is the number of threads or lanes."""

    benchmark: str
    title: str
    metric: str = "messages_per_second"
    size: int | None = 2


PANELS = (
    Panel("writer-peers", "Kafka to Parquet by hour and category, two threads"),
    Panel("ingest-100", "HTTP to Kafka, 100 events in a request", "events_per_second", None),
    Panel("worker-peers-call", "Calls of a service, a record each, 512 at once", size=512),
    Panel("match-10000", "Matching events with 10,000 queries, two threads"),
    Panel("mirror", "From one Kafka to another, two threads"),
)


def write(document: Mapping[str, Any], path: Path = CHART) -> None:
    """Replaces the chart."""
    path.write_text(svg(document))


def svg(document: Mapping[str, Any]) -> str:
    """The chart: a panel a benchmark, and in it a bar a system, the fastest first."""
    lines: list[str] = []
    top = 8
    for panel in PANELS:
        rows = _rows(document, panel)
        lines += _panel(panel, rows, document["settings"][panel.benchmark], top)
        top += _TITLE_HEIGHT + _LINE_HEIGHT * len(rows) + _PANEL_GAP
    content = "\n".join(f"  {line}" for line in lines)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" width="{_WIDTH}" \
height="{top}" role="img" aria-labelledby="title desc">
  <title id="title">Events a second, of headrace and others</title>
  <desc id="desc">{_described(document)}</desc>
  <style>
{_STYLE}
  </style>
  <rect class="page" width="{_WIDTH}" height="{top}" rx="6"/>
{content}
</svg>
"""


def _rows(document: Mapping[str, Any], panel: Panel) -> list[Row]:
    rows = (Row(**figures) for figures in document["rows"])
    identity = panel.benchmark, panel.metric, panel.size
    own = [row for row in rows if (row.benchmark, row.metric, row.size) == identity]
    return sorted(own, key=lambda row: -row.median)


def _panel(panel: Panel, rows: list[Row], settings: Mapping[str, Any], top: int) -> Iterator[str]:
    yield f'<text class="title" x="16" y="{top + 16}">{escape(panel.title)}</text>'
    guarantees = settings.get("guarantees", {})
    scale = _BAR_WIDTH / max(row.high for row in rows)
    for number, row in enumerate(rows):
        y = top + _TITLE_HEIGHT + _LINE_HEIGHT * number
        kind = "headrace" if row.system.startswith("headrace") else "other"
        low, median, high = (_BAR_LEFT + scale * at for at in (row.low, row.median, row.high))
        width = median - _BAR_LEFT
        guarantee = guarantees.get(row.system, "").partition(",")[0]
        yield f'<text class="system" x="{_BAR_LEFT - 8}" y="{y + 14}">{escape(row.system)}</text>'
        yield (
            f'<rect class="{kind}" x="{_BAR_LEFT}" y="{y + 3}" width="{width:.1f}" height="14"/>'
        )
        yield f'<path class="range" d="M{low:.1f} {y + 10}H{high:.1f}"/>'
        yield (
            f'<text x="{_BAR_LEFT + _BAR_WIDTH + 10}" y="{y + 14}">{row.median:,.0f} a second'
            f'<tspan class="quiet"> {escape(guarantee)}</tspan></text>'
        )


def _described(document: Mapping[str, Any]) -> str:
    return escape(
        "; ".join(
            f"{panel.title}: "
            + ", ".join(f"{row.system} {row.median:,.0f}" for row in _rows(document, panel))
            for panel in PANELS
        )
    )


if __name__ == "__main__":
    write(results.read())
