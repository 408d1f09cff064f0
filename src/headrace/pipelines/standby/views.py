"""What ``status`` and ``handover`` show of drivers that were started with ``--standby``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.markup import escape

from headrace.cli.screen import Screen, safe, table, with_remarks
from headrace.cli.view import view
from headrace.pipelines.standby.drivers import Handover

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


@view.register
def _handed_over(handover: Handover, screen: Screen) -> None:
    screen.line(
        f"{escape(handover.pipeline)}: the driver on {escape(handover.to_host)} is active, "
        f"{handover.seconds:.1f} s after the request; the one on {escape(handover.from_host)} is "
        "its standby."
    )
