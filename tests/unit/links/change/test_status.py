"""The status of what copies a topic into another one."""

from __future__ import annotations

from headrace.links.change.status import ChangeStatus


def test_a_change_exports_no_figures():
    """Their texts would name `headrace change list`, which is no command."""
    assert (ChangeStatus.metrics, ChangeStatus.part_metrics) == ((), {})
    assert ChangeStatus("old to new").counted({"records": 8}).records == 8
