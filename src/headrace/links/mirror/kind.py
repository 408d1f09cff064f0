"""Mirrors, as a kind of declarations."""

from __future__ import annotations

from headrace.links.mirror.declaration import Mirror
from headrace.links.mirror.rules import mirror_faults, mirror_type_faults
from headrace.project.kind import Kind, StatusKind


def _statuses() -> tuple[StatusKind, ...]:
    # Inside: a check needs no statuses, which import clients of Kafka.
    from headrace.links.mirror.status import MirrorStatus

    return (StatusKind(name="mirrors", type=MirrorStatus, view="headrace.links.mirror.views"),)


KIND = Kind(
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
)
