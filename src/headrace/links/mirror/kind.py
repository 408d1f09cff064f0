"""Mirrors, as a kind of declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.links.copying.kind import CopyKind
from headrace.links.mirror.declaration import Mirror
from headrace.links.mirror.rules import mirror_faults, mirror_type_faults

if TYPE_CHECKING:
    from headrace.links.mirror.plan import MirrorPlan
    from headrace.links.mirror.status import MirrorStatus


def _plan_type() -> type[MirrorPlan]:
    # Inside: a check needs no plans, which import clients of Kafka.
    from headrace.links.mirror.plan import MirrorPlan

    return MirrorPlan


def _status_type() -> type[MirrorStatus]:
    from headrace.links.mirror.status import MirrorStatus

    return MirrorStatus


KIND = CopyKind(
    type=Mirror,
    label="mirror",
    type_faults=mirror_type_faults,
    faults=mirror_faults,
    source_site=lambda mirror, _: mirror.source,
    plan_type=_plan_type,
    status_type=_status_type,
    reports_times=True,
)
