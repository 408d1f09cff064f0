"""What ``status`` shows of drivers that were started with ``--standby``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.markup import escape

from headrace.cli.screen import safe, table, with_remarks

if TYPE_CHECKING:
    from headrace.pipelines.standby.status import DriverStatus


def summary(statuses: Sequence[DriverStatus]) -> Group:
    """Returns a table of drivers, and below it why they wait."""
    drivers = table("pipeline", "driver", "role", "warm s ago", "takeovers", right=(3, 4))
    for status in statuses:
        age = status.warm_age_seconds
        warm = "" if status.is_active else "never" if age is None else f"{age:,.0f}"
        names = (status.name, status.instance, status.role, warm)
        drivers.add_row(*map(escape, names), f"{status.takeovers:,}")
    remarks = ((status.name, status.reason) for status in statuses if status.reason)
    return with_remarks(drivers, remarks, safe)
