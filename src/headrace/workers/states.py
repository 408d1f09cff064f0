"""The states of instances and lanes, and which state may follow which."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

from headrace.errors import WorkerStateError


class InstanceState(enum.StrEnum):
    """An instance. ``draining``: nothing new is begun, what is in process may end."""

    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    CLOSED = "closed"
    FAILED = "failed"


class LaneState(enum.StrEnum):
    """A subpartition. ``blocked``: its task did not accept; ``retrying``: between two attempts."""

    STARTING = "starting"
    RUNNING = "running"
    BLOCKED = "blocked"
    RETRYING = "retrying"
    DRAINING = "draining"
    CLOSED = "closed"
    FAILED = "failed"


State = TypeVar("State", InstanceState, LaneState)

INSTANCE: Mapping[InstanceState, frozenset[InstanceState]] = {
    InstanceState.CREATED: frozenset({InstanceState.STARTING, InstanceState.CLOSED}),
    InstanceState.STARTING: frozenset(
        {InstanceState.RUNNING, InstanceState.CLOSED, InstanceState.FAILED}
    ),
    InstanceState.RUNNING: frozenset({InstanceState.DRAINING}),
    InstanceState.DRAINING: frozenset({InstanceState.CLOSED, InstanceState.FAILED}),
    InstanceState.CLOSED: frozenset(),
    InstanceState.FAILED: frozenset(),
}

ACTIVE_STATES = frozenset({LaneState.RUNNING, LaneState.BLOCKED, LaneState.RETRYING})
"""States in which a lane begins records."""

_ENDING = frozenset({LaneState.DRAINING, LaneState.FAILED})
LANE: Mapping[LaneState, frozenset[LaneState]] = {
    LaneState.STARTING: frozenset({LaneState.RUNNING}) | _ENDING,
    LaneState.RUNNING: frozenset({LaneState.BLOCKED, LaneState.RETRYING}) | _ENDING,
    LaneState.BLOCKED: frozenset({LaneState.RUNNING}) | _ENDING,
    LaneState.RETRYING: frozenset({LaneState.RUNNING}) | _ENDING,
    LaneState.DRAINING: frozenset({LaneState.CLOSED, LaneState.FAILED}),
    LaneState.CLOSED: frozenset(),
    LaneState.FAILED: frozenset({LaneState.CLOSED}),
}


def is_final(state: InstanceState) -> bool:
    """Returns whether no state follows ``state``."""
    return not INSTANCE[state]


def transition(current: State, target: State, allowed: Mapping[State, frozenset[State]]) -> State:
    """Returns ``target``, if it may follow ``current``.

    Raises:
        WorkerStateError: if it may not.
    """
    if target not in allowed[current]:
        raise WorkerStateError(f"{target} does not follow {current}")
    return target
