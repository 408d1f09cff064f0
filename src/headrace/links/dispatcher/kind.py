"""Dispatchers, as a kind of declarations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headrace.links.dispatcher.declaration import Dispatcher
from headrace.links.dispatcher.rules import (
    dispatched_twice,
    dispatcher_faults,
    dispatcher_type_faults,
)
from headrace.links.kind import LinkKind, ReplicatedTopic
from headrace.project.kind import StatusKind

if TYPE_CHECKING:
    from headrace.links.ledger.balances import CountedEnds
    from headrace.project.loaded import LoadedProject


def _statuses() -> tuple[StatusKind, ...]:
    # Inside: a check needs no statuses, which import clients of Kafka.
    from headrace.links.dispatcher.status import DispatcherStatus

    return (
        StatusKind(
            name="dispatchers", type=DispatcherStatus, view="headrace.links.dispatcher.views"
        ),
    )


def _ends(project: LoadedProject, dispatcher: Dispatcher) -> Iterable[CountedEnds]:
    from headrace.links.dispatcher.book import dispatched_ends

    return dispatched_ends(project, dispatcher)


def _replicated(dispatcher: Dispatcher, site: str) -> Iterator[ReplicatedTopic]:
    by, source = f"dispatcher {dispatcher.name}", dispatcher.source.name
    for target, topic in dispatcher.targets.items():
        yield ReplicatedTopic(by, site, source, target, topic, keeps_times=False)


KIND = LinkKind(
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
    replicated=_replicated,
    ends=_ends,
)
