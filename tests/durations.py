"""How long tests take, and how much CPU they use, with all processes that they start.

A pytest plugin. Each process of ``pytest -n`` moves itself into a control group of its own where it
is allowed to create one; what it starts (servers, Spark, commands) stays in that group. Elsewhere
the CPU time is that of the process and of its children that have ended.

A server that tests share counts where it runs: its start in the test that asked for it first, its
work in whichever test the process that started it runs meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_NANOSECONDS = 1_000_000_000
_ACCOUNTS = Path("/sys/fs/cgroup/cpuacct")  # of version 1
_UNIFIED = Path("/sys/fs/cgroup")  # of version 2


@dataclass
class Spent:
    """Seconds of a test, a file or a folder, and seconds of CPU."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def add(self, report: pytest.TestReport) -> None:
        """Adds a phase of a test: its setup, its call or its teardown."""
        self.seconds += report.duration
        self.cpu_seconds += getattr(report, "cpu_seconds", 0.0)


class ProcessorClock:
    """CPU seconds of this process, and of all that it has started."""

    def __init__(self) -> None:
        self._group: Path | None = None
        with contextlib.suppress(OSError):
            self._group = _enter_group()

    def seconds(self) -> float:
        """Returns the CPU seconds so far; only differences have a meaning."""
        if self._group is None:
            return sum(os.times()[:4])
        usage = self._group / "cpuacct.usage"
        if usage.exists():
            return int(usage.read_text()) / _NANOSECONDS
        lines = (self._group / "cpu.stat").read_text().split()
        return int(lines[lines.index("usage_usec") + 1]) / 1_000_000

    def close(self) -> None:
        """Moves what still runs out of the control group, and removes it."""
        if self._group is None:
            return
        with contextlib.suppress(OSError):
            for process in (self._group / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (self._group.parent / "cgroup.procs").write_text(process)
            self._group.rmdir()


def _enter_group() -> Path:
    parent = _ACCOUNTS if _ACCOUNTS.is_dir() else _UNIFIED
    group = parent / f"headrace-tests-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        group.rmdir()
        raise
    return group


class Durations:
    """Measures in each process of a run, and prints in the one that reports.

    Args:
        shown: how many of the slowest tests and files are printed.
    """

    def __init__(self, shown: int) -> None:
        self._shown = shown
        self._clock = ProcessorClock()
        self._measured = self._of_item = 0.0
        self._started = time.monotonic()
        self._tests: defaultdict[str, Spent] = defaultdict(Spent)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """A test begins: what the process did before, such as collecting, is not its."""
        self._measured, self._of_item = self._clock.seconds(), 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        """Adds the CPU seconds of a phase to its report, and those of the test to JUnit's."""
        now = self._clock.seconds()
        spent, self._measured = now - self._measured, now
        self._of_item += spent
        if call.when == "teardown":
            item.user_properties.append(("cpu_seconds", round(self._of_item, 2)))
        report = yield
        report.cpu_seconds = spent
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds a phase of a test to its sums."""
        self._tests[report.nodeid].add(report)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Prints the slowest tests and files, and the sums of folders."""
        files: defaultdict[str, Spent] = defaultdict(Spent)
        folders: defaultdict[str, Spent] = defaultdict(Spent)
        for test, spent in self._tests.items():
            file = test.partition("::")[0]
            for total in (files[file], folders[_folder(file)], folders["all tests"]):
                total.seconds += spent.seconds
                total.cpu_seconds += spent.cpu_seconds
        for title, rows in (("tests", self._tests), ("files", files), ("folders", folders)):
            terminalreporter.section(f"slowest {title}: seconds, and seconds of CPU")
            slowest = sorted(rows.items(), key=lambda row: row[1].seconds, reverse=True)
            for name, spent in slowest[: self._shown]:
                line = f"{spent.seconds:8.1f} {spent.cpu_seconds:8.1f}  {name}"
                terminalreporter.write_line(line)
        minutes = (time.monotonic() - self._started) / 60
        terminalreporter.write_line(f"The run took {minutes:.1f} minutes.")

    def pytest_unconfigure(self) -> None:
        """Leaves no control group behind."""
        self._clock.close()


def _folder(file: str) -> str:
    return "/".join(Path(file).parts[:2])
