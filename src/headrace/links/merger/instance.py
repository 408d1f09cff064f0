"""An instance of a merger: topics of several sites, into one that is sorted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import confluent_kafka

from headrace.kafka.table.topic_table import TableFollower
from headrace.links.instance import LinkInstance
from headrace.links.merger.merging import MergerCarrier
from headrace.links.merger.plan import ClockSource, MergerPlan
from headrace.links.merger.positions.position import OutputPosition
from headrace.links.merger.positions.starts import find_starts
from headrace.links.merger.status import MergerStatus
from headrace.links.site_times import SITE_TIMES, SiteTime, read_site_time
from headrace.links.starts import Starts
from headrace.links.target import Rejection
from headrace.model import TopicPartition


class MergerInstance(LinkInstance[OutputPosition]):
    """Merges its share of the partitions until it is stopped, or fails. Used once."""

    def __init__(self, plan: MergerPlan) -> None:
        self._plan, self._site_times = plan, SiteTimesTable()
        super().__init__(_MergerPolicy(plan, self._site_times))

    def run(self, observe: Callable[[None], None]) -> None:
        """Merges until :meth:`stop`. Raises what :meth:`LinkInstance.run` does."""
        if ClockSource.MIRROR not in self._plan.sources.values():
            super().run(observe)
            return
        follower = TableFollower(self._plan.config, SITE_TIMES, self._site_times.take)
        try:
            super().run(observe)
        finally:
            follower.close()

    def status(self) -> MergerStatus:
        """Returns how it is doing; on its thread, or after its end."""
        progress, merging = self.progress, self.carrier
        status = MergerStatus(
            self._plan.name,
            state=progress.state,
            reason=progress.reason,
            restarts=progress.restarts,
            refused={output.path: str(why) for output, why in sorted(progress.refused.items())},
        )
        status = status.counted(progress.moved)
        if not isinstance(merging, MergerCarrier):
            return status
        return replace(
            status,
            lags={source.path: lag for source, lag in sorted(merging.lags().items())},
            sorted_to_ms={
                output.path: time_ms for output, time_ms in sorted(merging.sorted_to_ms().items())
            },
            waits_for={
                output.path: [source.path for source in sources]
                for output, sources in sorted(merging.waits_for().items())
            },
            idle=[source.path for source in sorted(merging.idle())],
        )


class SiteTimesTable(Mapping[TopicPartition, SiteTime]):
    """The newest time of each copy, which a follower's thread fills."""

    def __init__(self) -> None:
        self._times: dict[TopicPartition, SiteTime] = {}
        self._lock = threading.Lock()

    def take(self, key: bytes, value: bytes | None) -> None:
        """Takes a record of the topic."""
        site_time = read_site_time(key, value)
        if site_time is not None:
            copy, time = site_time
            with self._lock:
                self._times[copy] = time

    def __getitem__(self, copy: TopicPartition) -> SiteTime:
        return self._times[copy]

    def __iter__(self) -> Iterator[TopicPartition]:
        with self._lock:
            return iter(list(self._times))

    def __len__(self) -> int:
        return len(self._times)


class _MergerPolicy:
    def __init__(self, plan: MergerPlan, site_times: SiteTimesTable) -> None:
        self._plan, self._site_times = plan, site_times
        self.target = plan.link_target

    def carrier(
        self, transactional_id: str, rejections: Mapping[TopicPartition, Rejection] | None
    ) -> MergerCarrier:
        return MergerCarrier(self._plan, transactional_id, self._site_times, rejections)

    def positions(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        return [source for output in partitions for source in self._plan.inputs_of(output)]

    def starts(
        self,
        partitions: Collection[TopicPartition],
        committed: Sequence[confluent_kafka.TopicPartition],
    ) -> Starts[OutputPosition]:
        return find_starts(self._plan, partitions, committed)

    def partition_for(self, source: TopicPartition) -> TopicPartition:
        return TopicPartition(self._plan.target, source.partition)
