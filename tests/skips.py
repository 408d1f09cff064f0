"""A test that is skipped has failed: nobody reads the output of a run that passes."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fails what skips itself or is marked so, and what is expected to fail."""
    return _failed((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fails a module that skips itself, as ``importorskip`` does."""
    return _failed((yield))


def _failed(report: Report) -> Report:
    if report.skipped:
        vars(report).pop("wasxfail", None)  # pytest counts what has it as no failure
        report.outcome = "failed"
        report.longrepr = f"this project lets no test be skipped: {report.longrepr}"
    return report
