"""How long a drill is, which faults it has, and the report of what it did."""

from __future__ import annotations

import json
import platform
import random
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ("headrace", "pyspark", "confluent-kafka", "deltalake", "pyarrow", "polars")
_PROPERTY = "drill"


@dataclass(frozen=True)
class DrillRun:
    """One drill of one run of the tests.

    Attributes:
        long: as in ``make drills``; CI runs the short form.
        seed: of the whole run; a drill's faults follow from it and the drill's name.
        random: what chooses the faults.
        note: adds a count to the report, by its name.
    """

    long: bool
    seed: int
    random: random.Random
    note: Callable[[str, object], None]

    def size(self, *, short: int, long: int) -> int:
        """How many, in this run."""
        return long if self.long else short

    def report(self, **counts: object) -> None:
        """What the drill did, for the report of the run."""
        for name, count in counts.items():
            self.note(_PROPERTY, [name, count])


class DrillReports:
    """Collects what drills report, and writes it to the file of ``--drill-report``."""

    def __init__(self, config: pytest.Config) -> None:
        self._options = config.option
        self._drills: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A drill has ended: its test's call, or a fixture that failed."""
        counts = dict(value for name, value in report.user_properties if name == _PROPERTY)
        if report.when != "call" and not (counts and report.failed):
            return
        if counts or report.keywords.get("drill"):
            self._drills.append(
                {
                    "drill": report.nodeid,
                    "outcome": report.outcome,
                    "seconds": round(report.duration, 1),
                    "counts": counts,
                }
            )

    def pytest_sessionfinish(self) -> None:
        """Writes the report."""
        path: Path | None = self._options.drill_report
        if path is None:
            return
        found = {
            "seed": self._options.seed,
            "form": self._options.drills,
            "versions": {name: version(name) for name in PACKAGES}
            | {"python": platform.python_version()},
            "drills": sorted(self._drills, key=lambda one: str(one["drill"])),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=2) + "\n")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """A line a drill."""
        if not self._drills or self._options.drill_report is None:
            return
        terminalreporter.section(f"drills, seed {self._options.seed}")
        for one in sorted(self._drills, key=lambda one: str(one["drill"])):
            counts = ", ".join(f"{name} {count}" for name, count in one["counts"].items())
            line = f"{one['outcome']:7} {one['seconds']:7.1f} s  {one['drill']}  {counts}"
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"report: {self._options.drill_report}")
