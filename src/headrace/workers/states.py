"""Where an instance is in its life, and where a lane is; which state may follow which."""

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
    """A subpartition. ``held``: its task did not accept; ``retrying``: between two attempts."""

    STARTING = "starting"
    RUNNING = "running"
    HELD = "held"
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

ACTIVE_STATES = frozenset({LaneState.RUNNING, LaneState.HELD, LaneState.RETRYING})
"""Of a lane: it begins records."""

_ENDING = frozenset({LaneState.DRAINING, LaneState.FAILED})
LANE: Mapping[LaneState, frozenset[LaneState]] = {
    LaneState.STARTING: frozenset({LaneState.RUNNING}) | _ENDING,
    LaneState.RUNNING: frozenset({LaneState.HELD, LaneState.RETRYING}) | _ENDING,
    LaneState.HELD: frozenset({LaneState.RUNNING}) | _ENDING,
    LaneState.RETRYING: frozenset({LaneState.RUNNING}) | _ENDING,
    LaneState.DRAINING: frozenset({LaneState.CLOSED, LaneState.FAILED}),
    LaneState.CLOSED: frozenset(),
    LaneState.FAILED: frozenset({LaneState.CLOSED}),
}


def is_final(state: InstanceState) -> bool:
    """Nothing follows it."""
    return not INSTANCE[state]


def follow(now: State, then: State, legal: Mapping[State, frozenset[State]]) -> State:
    """``then``, if it may follow ``now``.

    Raises:
        WorkerStateError: it may not.
    """
    if then not in legal[now]:
        raise WorkerStateError(f"{then} does not follow {now}")
    return then
