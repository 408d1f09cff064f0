"""What an instance of a mirror needs to know."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import MirrorOffsetError
from headrace.links.copying.plan import CopyPlan, Skipping
from headrace.links.mirror.filter import MirrorFilter
from headrace.links.mirror.loop_check import LoopCheck
from headrace.links.mirror.status import MirrorStatus


@dataclass(frozen=True)
class MirrorPlan(CopyPlan):
    """A mirror with the clusters of its sites."""

    status = MirrorStatus
    offset_error = MirrorOffsetError

    @property
    def filter(self) -> MirrorFilter:
        return MirrorFilter(self.source_site, self.target_site)

    def skipping(self) -> Skipping:
        return LoopCheck(self).look
