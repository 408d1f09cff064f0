"""Which fault comes when: the same for the same seed."""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")

_CALM_SECONDS = (1.0, 4.0)
_CUT_SECONDS = (3.0, 12.0)


class FaultKind(enum.StrEnum):
    """What fails.

    LEADER: a broker that leads a partition is killed, and started once others lead.
    CONTROLLER: the broker that is the active controller is killed, and started in the same way.
    BROKERS: each broker is stopped and started, in order.
    KILL: an instance is killed with SIGKILL, and started again.
    RESTART: each instance is stopped with SIGTERM and started, in order.
    CUT: no client reaches any broker for a few seconds; brokers reach each other.
    """

    LEADER = "leader"
    CONTROLLER = "controller"
    BROKERS = "brokers"
    KILL = "kill"
    RESTART = "restart"
    CUT = "cut"


@dataclass(frozen=True)
class ScheduledFault:
    """A fault that will happen.

    Attributes:
        kind: what fails.
        calm_seconds: without a fault before it, once everything works.
        choice: which of several fails, from 0 to below 1.
        cut_seconds: how long clients are cut off.
    """

    kind: FaultKind
    calm_seconds: float
    choice: float
    cut_seconds: float

    def choose(self, items: Sequence[Item]) -> Item:
        """Returns that of ``items`` which fails."""
        return items[int(self.choice * len(items))]


def schedule(kinds: Sequence[FaultKind], rounds: int, seed: int) -> list[ScheduledFault]:
    """Returns the faults: in each round one of each kind, in an order that follows from the seed.

    The first rounds are the same however many there are.
    """
    chosen = random.Random(seed)  # noqa: S311 - faults, no secrets
    faults: list[ScheduledFault] = []
    for _ in range(rounds):
        in_order = list(dict.fromkeys(kinds))
        chosen.shuffle(in_order)
        faults += [
            ScheduledFault(
                kind, chosen.uniform(*_CALM_SECONDS), chosen.random(), chosen.uniform(*_CUT_SECONDS)
            )
            for kind in in_order
        ]
    return faults
