"""Results: one row a (benchmark, system, metric), with the median and the range of its rounds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Row:
    """One figure of one system; ``low`` and ``high`` are its worst and best rounds, by value.

    ``threads`` or ``lanes`` where systems were measured with several numbers of them.
    """

    benchmark: str
    system: str
    metric: str
    unit: str
    median: float
    low: float
    high: float
    threads: int | None = None
    lanes: int | None = None

    @property
    def size(self) -> int | None:
        """Its number of threads or lanes."""
        return self.threads or self.lanes

    @property
    def identity(self) -> tuple[str, str, str, int | None]:
        """What it is a figure of: a later run replaces it."""
        return self.benchmark, self.system, self.metric, self.size

    def to_json(self) -> dict[str, Any]:
        """Plain values by name; no ``threads`` or ``lanes`` where they say nothing."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def row(
    benchmark: str,
    system: str,
    metric: str,
    unit: str,
    rounds: Sequence[float],
    **size: int,
) -> Row:
    """The row of a metric measured once a round; ``size`` is ``threads=`` or ``lanes=``."""
    median, low, high = (_rounded(find(rounds)) for find in (statistics.median, min, max))
    return Row(benchmark, system, metric, unit, median, low, high, **size)


def _rounded(value: float) -> float:
    """Four significant digits at least: more would be noise."""
    return float(round(value)) if abs(value) >= 1000 else float(f"{value:.4g}")


def merge(
    document: Mapping[str, Any],
    benchmark: str,
    context: Mapping[str, Mapping[str, Any]],
    rows: Iterable[Row],
) -> dict[str, Any]:
    """``document`` with the rows of one benchmark put in, and where they were measured.

    ``context`` is ``machine``, ``versions`` and ``settings``, each kept by benchmark: others were
    measured elsewhere. Rows of other benchmarks, and of systems that were not measured now, stay.
    """
    found = {one.identity: one for one in rows}
    kept = [one for one in document.get("rows", ()) if Row(**one).identity not in found]
    kept_context = {
        part: {**document.get(part, {}), benchmark: dict(context[part])}
        for part in ("machine", "versions", "settings")
    }
    return {
        **kept_context,
        "rows": [*kept, *(one.to_json() for one in found.values())],
    }


def without(
    document: Mapping[str, Any], benchmark: str, gone: Collection[tuple[str, int]]
) -> dict[str, Any]:
    """``document`` without the rows of these (system, size) of a benchmark."""
    kept = [
        one
        for one in document.get("rows", ())
        if one["benchmark"] != benchmark or (one["system"], Row(**one).size) not in gone
    ]
    return {**document, "rows": kept} if document else {}


def read(path: Path = RESULTS) -> dict[str, Any]:
    """The document of ``path``; an empty one where there is none."""
    if not path.exists():
        return {}
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def write(document: Mapping[str, Any], path: Path = RESULTS) -> None:
    """Replaces ``path`` whole."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=2) + "\n")
    partial.replace(path)
