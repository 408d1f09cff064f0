"""Mirrors, as a kind of declarations."""

from __future__ import annotations

from headrace.links.copying.kind import CopyKind
from headrace.links.mirror.declaration import Mirror
from headrace.links.mirror.rules import mirror_faults, mirror_type_faults

KIND = CopyKind(
    type=Mirror,
    label="mirror",
    type_faults=mirror_type_faults,
    faults=mirror_faults,
    source_site=lambda mirror, _: mirror.source,
    reports_times=True,
)
