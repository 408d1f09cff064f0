"""Mergers, as a kind of declarations."""

from __future__ import annotations

from headrace.links.merger.declaration import Merger
from headrace.links.merger.rules import merger_faults, merger_type_faults, written_beside_mergers
from headrace.project.kind import Kind, StatusKind


def _statuses() -> tuple[StatusKind, ...]:
    # Inside: a check needs no statuses, which import clients of Kafka.
    from headrace.links.merger.status import MergerStatus

    return (StatusKind(name="mergers", type=MergerStatus, view="headrace.links.merger.views"),)


KIND = Kind(
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
)
