"""Mergers, as a kind of declarations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.links.kind import LinkKind
from headrace.links.merger.declaration import Merger
from headrace.links.merger.rules import merger_faults, merger_type_faults, written_beside_mergers
from headrace.project.kind import StatusKind

if TYPE_CHECKING:
    from headrace.links.ledger.balances import CountedEnds
    from headrace.project.loaded import LoadedProject


def _statuses() -> tuple[StatusKind, ...]:
    # Inside: a check needs no statuses, which import clients of Kafka.
    from headrace.links.merger.status import MergerStatus

    return (StatusKind(name="mergers", type=MergerStatus, view="headrace.links.merger.views"),)


def _ends(project: LoadedProject, merger: Merger) -> Iterable[CountedEnds]:
    from headrace.links.merger.book import merged_ends

    return (merged_ends(project, merger),)


KIND = LinkKind(
    type=Merger,
    label="merger",
    plural="mergers",
    hint="`headrace merger` has its commands",
    type_faults=merger_type_faults,
    faults=lambda merger, _: merger_faults(merger),
    faults_between=lambda declarations, _: written_beside_mergers(declarations),
    consumer_group=lambda merger: merger.consumer_group,
    reads=lambda merger: merger.sources,
    writes=lambda merger: (("writes to", topic) for topic in (merger.target, merger.late)),
    is_sole_writer=True,
    takes_times=True,
    statuses=_statuses,
    ends=_ends,
)
