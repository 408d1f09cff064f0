"""Dispatchers, as a kind of declarations."""

from __future__ import annotations

from headrace.links.dispatcher.declaration import Dispatcher
from headrace.links.dispatcher.rules import (
    dispatched_twice,
    dispatcher_faults,
    dispatcher_type_faults,
)
from headrace.project.kind import Kind, StatusKind


def _statuses() -> tuple[StatusKind, ...]:
    # Inside: a check needs no statuses, which import clients of Kafka.
    from headrace.links.dispatcher.status import DispatcherStatus

    return (
        StatusKind(
            name="dispatchers", type=DispatcherStatus, view="headrace.links.dispatcher.views"
        ),
    )


KIND = Kind(
    type=Dispatcher,
    label="dispatcher",
    plural="dispatchers",
    hint="`headrace dispatcher` has its commands",
    type_faults=dispatcher_type_faults,
    faults=dispatcher_faults,
    faults_between=lambda declarations, _: dispatched_twice(declarations),
    consumer_group=lambda dispatcher: dispatcher.consumer_group,
    reads=lambda dispatcher: (dispatcher.source,),
    statuses=_statuses,
)
