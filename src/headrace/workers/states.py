"""The states of instances and lanes, and which state may follow which."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from headrace.errors import WorkerStateError
from headrace.service.status import State


class PauseReason(enum.StrEnum):
    """Why a partition is paused; there may be several reasons at once."""

    LANE = "lane"
    BUDGET = "budget"
    REQUESTED = "requested"
    TRANSACTION = "transaction"
    RESTORING = "restoring"


class LaneState(enum.StrEnum):
    """The state of a subpartition; ``lanes/lane.py`` draws who moves it, and when."""

    STARTING = "starting"
    RUNNING = "running"
    BLOCKED = "blocked"
    RETRYING = "retrying"
    DRAINING = "draining"
    CLOSED = "closed"
    FAILED = "failed"


INSTANCE: Mapping[State, frozenset[State]] = {
    State.CREATED: frozenset({State.STARTING, State.CLOSED}),
    State.STARTING: frozenset({State.RUNNING, State.CLOSED, State.FAILED}),
    State.RUNNING: frozenset({State.DRAINING}),
    State.DRAINING: frozenset({State.CLOSED, State.FAILED}),
    State.CLOSED: frozenset(),
    State.FAILED: frozenset(),
}

ACTIVE_STATES = frozenset({LaneState.RUNNING, LaneState.BLOCKED, LaneState.RETRYING})
"""States in which a lane starts records."""

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


def transition(current: State, target: State) -> State:
    """Returns the state ``target`` of an instance, if it may follow ``current``.

    Raises:
        WorkerStateError: if it may not.
    """
    if target not in INSTANCE[current]:
        raise WorkerStateError(f"{target} does not follow {current}")
    return target
