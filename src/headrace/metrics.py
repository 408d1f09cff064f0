"""Metrics: name, unit, meaning, and what to do when the figure moves.

The names are the fields of the status of a service, also in its JSON. Counters start at 0 with the
run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A figure of a service, or of one of its parts, such as a partition.

    Attributes:
        name: name in progress, JSON and /metrics.
        unit: unit of the figure.
        meaning: what is counted or measured.
        runbook: when to act, and what to do then.
        is_counter: whether it begins at 0 with the run and never falls.
    """

    name: str
    unit: str
    meaning: str
    runbook: str
    is_counter: bool = False
