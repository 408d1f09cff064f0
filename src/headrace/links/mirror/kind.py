"""Mirrors, as a kind of declarations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headrace.links.kind import LinkKind, ReplicatedTopic
from headrace.links.mirror.declaration import Mirror
from headrace.links.mirror.rules import mirror_faults, mirror_type_faults
from headrace.project.kind import StatusKind

if TYPE_CHECKING:
    from headrace.links.ledger.balances import CountedEnds
    from headrace.project.loaded import LoadedProject


def _statuses() -> tuple[StatusKind, ...]:
    # Inside: a check needs no statuses, which import clients of Kafka.
    from headrace.links.mirror.status import MirrorStatus

    return (StatusKind(name="mirrors", type=MirrorStatus, view="headrace.links.mirror.views"),)


def _ends(project: LoadedProject, mirror: Mirror) -> Iterable[CountedEnds]:
    from headrace.links.mirror.book import mirrored_ends

    return mirrored_ends(project.settings, mirror)


def _replicated(mirror: Mirror, site: str) -> Iterator[ReplicatedTopic]:
    by = f"mirror {mirror.name}"
    for source, copy in mirror.topics.items():
        yield ReplicatedTopic(by, mirror.source, source, site, copy.name, keeps_times=True)


KIND = LinkKind(
    type=Mirror,
    label="mirror",
    plural="mirrors",
    hint="`headrace mirror` has its commands",
    type_faults=mirror_type_faults,
    faults=mirror_faults,
    consumer_group=lambda mirror: mirror.consumer_group,
    writes=lambda mirror: (("copies to", topic) for topic in mirror.topics.values()),
    is_sole_writer=True,
    reports_times=True,
    statuses=_statuses,
    replicated=_replicated,
    ends=_ends,
)
