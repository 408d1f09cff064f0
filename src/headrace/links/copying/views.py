"""Views of `run`, `list` and `accept` of links that copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group

import headrace.links.views  # noqa: F401  registers the views of `list` and `accept`
from headrace.cli.service_progress import instances, live_figures
from headrace.service.status import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.links.copying.status import CopyStatus


def summary(statuses: Sequence[CopyStatus]) -> Group:
    """Returns a table of instances, and below it why they failed or refuse partitions."""
    columns = {
        "records": "records",
        "partitions": "partitions",
        "lag": "lag_records",
        "refused": "refused_partitions",
        "restarts": "restarts",
    }
    return instances(statuses, columns, lambda status: status.refused.values())


def copy_figures(status: CopyStatus) -> str:
    """Returns the line of figures of `run`."""
    figures = [
        f"{status.records:,} records copied",
        f"{status.partitions:,} partitions",
        f"lag {status.lag_records:,}",
    ]
    if status.state is State.WAITING:
        figures.append(f"waits: {status.reason}")
    for name, words in status.not_copied.items():
        if count := getattr(status, name):
            figures.append(f"{count:,} {words}")
    if status.refused:
        figures.append(f"{status.refused_partitions:,} partitions refused")
    return ", ".join(figures)


copying = live_figures(copy_figures)
