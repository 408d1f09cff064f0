"""An instance of a link that copies a partition to a partition."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import confluent_kafka

from headrace.kafka.read.resume import Position
from headrace.links.copying.carrier import CopyCarrier
from headrace.links.copying.plan import CopyPlan
from headrace.links.copying.positions import find_starts, positions_of
from headrace.links.copying.status import CopyStatus
from headrace.links.instance import LinkInstance
from headrace.links.site_times import ensure_site_times
from headrace.links.starts import Starts
from headrace.links.target import Rejection, check_clusters, naming_site
from headrace.links.timing import LinkTiming
from headrace.model import TopicPartition


class CopyInstance(LinkInstance[Position]):
    """Copies its share of a link's partitions until it is stopped, or fails. Used once."""

    def __init__(self, plan: CopyPlan, timing: LinkTiming = LinkTiming()) -> None:
        super().__init__(_CopyPolicy(plan), timing)
        self._plan = plan

    def status(self) -> CopyStatus:
        """Returns how it is doing; on its thread, or after its end."""
        progress, carrier = self.progress, self.carrier
        lags = carrier.lags() if isinstance(carrier, CopyCarrier) else {}
        refused = {
            self._plan.source_of(copy).path: str(why)
            for copy, why in sorted(progress.refused.items())
        }
        status = self._plan.status(
            self._plan.name,
            state=progress.state,
            reason=progress.reason,
            restarts=progress.restarts,
            lags={source.path: lag for source, lag in sorted(lags.items())},
            refused=refused,
        )
        return status.counted(progress.moved)


class _CopyPolicy:
    def __init__(self, plan: CopyPlan) -> None:
        self._plan = plan
        self.target = plan.link_target
        self._has_checked_clusters = False

    def carrier(
        self, transactional_id: str, rejections: Mapping[TopicPartition, Rejection] | None
    ) -> CopyCarrier:
        plan = self._plan
        if not self._has_checked_clusters:
            own, other = (plan.target_site, plan.target), (plan.source_site, plan.source)
            check_clusters(plan.status.kind, plan.name, plan.copies, own, other)
            self._has_checked_clusters = True
        if plan.reports_times:
            with naming_site(plan.target_site):
                ensure_site_times(plan.target)
        return CopyCarrier(plan, transactional_id, rejections)

    def positions(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        return list(partitions)

    def starts(
        self,
        _: Collection[TopicPartition],
        committed: Sequence[confluent_kafka.TopicPartition],
    ) -> Starts[Position]:
        starts, copy_of = find_starts(self._plan, positions_of(committed)), self._plan.copy_of
        return Starts(
            {copy_of(source): position for source, position in starts.positions.items()},
            {copy_of(source): refusal for source, refusal in starts.refused.items()},
            frozenset(map(copy_of, starts.awaited)),
        )

    def partition_for(self, source: TopicPartition) -> TopicPartition:
        return self._plan.copy_of(source)
