"""What `reconcile` counts of a merger: the sources, the sorted topic and that of late records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from headrace.kafka.client.offsets import committed
from headrace.ledger.sums import Fate, Sums
from headrace.links.accepted import AcceptedRange, accepted_folder, in_force
from headrace.links.ledger.balances import CountedEnds
from headrace.links.ledger.book import LinkBook, LinkCount
from headrace.links.ledger.ends import UnknownPartitions, led_partitions, ranges_now, settled_ranges
from headrace.links.ledger.records import (
    LinkKey,
    by_partition,
    first_values,
    greatest_values,
    heads,
    read_records,
    sums_by_fate,
)
from headrace.links.merger.declaration import Merger
from headrace.links.merger.merging import LATE_HEADER, NO_TIMESTAMP
from headrace.links.merger.plan import MergerPlan
from headrace.links.merger.positions.position import InputPosition, positions_of
from headrace.links.merger.standing import plan_of
from headrace.model import OffsetRange, TopicPartition
from headrace.project.loaded import LoadedProject
from headrace.project.site_clusters import own_cluster
from headrace.runtime.clock import now_in_ms
from headrace.spark.header_columns import own_time_ms

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


@dataclass(frozen=True)
class MergedTopics:
    """A merger whose records are counted in all of its topics.

    Attributes:
        plan: of the merger.
        site: of its cluster.
        accepted: reads the ranges that were left out, the oldest first.
    """

    plan: MergerPlan
    site: str
    accepted: Callable[[], Sequence[AcceptedRange]]

    def count(self, spark: SparkSession, window_seconds: int) -> LinkCount:
        """Counts the records of the sources, of the target and of the late topic.

        Raises:
            AuthorizationError: if an ACL is missing.
            BrokerUnreachableError: if the brokers do not answer.
            NotCountedError: if records were removed meanwhile, or can't be read.
        """
        return _Counting(spark, self, window_seconds).count()


def merged_ends(project: LoadedProject, merger: Merger) -> CountedEnds:
    """Returns the sources with the target and the topic of late records."""
    site = own_cluster(project.settings).site

    def merged_topics() -> MergedTopics:
        plan = plan_of(project, merger)
        return MergedTopics(plan, site, accepted_folder(project.settings, plan.group).read)

    ends = ", ".join(topic.name for topic in merger.sources), merger.target.name
    seconds = project.settings.ledger.window_seconds
    return CountedEnds(LinkBook("merger", merger.name, *ends, seconds), merged_topics)


class _Counting:
    """Counts a merger once, by the numbers of its partitions."""

    def __init__(self, spark: SparkSession, link: MergedTopics, window_seconds: int) -> None:
        self._spark, self._plan, self._window_seconds = spark, link.plan, window_seconds
        self._site, self._link = link.site, link
        self._unknown = UnknownPartitions()
        self._accepted: list[AcceptedRange] = []

    def count(self) -> LinkCount:
        """Returns the count."""
        plan = self._plan
        topics = (*plan.topics, plan.target, plan.late)
        # The order is that of the contract in `links.ledger`: positions, ends of what is written,
        # ends of what is read. Each step may add partitions that are unknown, so that the numbers
        # are filtered again before they are used.
        led, leaderless = led_partitions(plan.config, self._site, topics)
        self._unknown.note_all(leaderless)
        numbers = sorted({partition.partition for partition in led} | self._unknown.numbers)
        for number in numbers:
            for partition in (TopicPartition(topic, number) for topic in topics):
                if partition not in led and partition not in leaderless:
                    self._unknown.note(partition, f"there is no {partition.path}")
        target_ids = {
            partition.partition: led[partition]
            for partition in led
            if partition.topic == plan.target
        }
        numbers = self._known(numbers)
        inputs = [TopicPartition(topic, n) for topic in plan.topics for n in numbers]
        positions = positions_of(committed(plan.config, plan.group, inputs))
        self._accepted = [
            range_
            for range_ in in_force(self._link.accepted(), led, target_ids)
            # What was not committed after it was written is not left out.
            if (at := positions.get(range_.source)) is not None and range_.end <= at.offset
        ]
        self._check_ids(positions, led)
        outputs = [TopicPartition(t, n) for t in (plan.target, plan.late) for n in numbers]
        written, open_ = settled_ranges(plan.config, self._site, outputs)
        self._unknown.note_all(open_)
        read = ranges_now(plan.config, self._site, inputs)
        for source, range_ in read.items():
            if (at := positions.get(source)) is not None:
                self._unknown.note_outside(range_, at.offset, "merged")
        numbers = self._known(numbers)
        written, read = _of(numbers, written), _of(numbers, read)
        from_ms = self._from_ms([*written.values(), *read.values()])
        numbers = self._known(numbers)
        source_fate = _source_fate(positions)
        return LinkCount(
            {number: TopicPartition(plan.target, number).path for number in numbers},
            self._sums(_of(numbers, read).values(), source_fate, from_ms),
            self._sums(_of(numbers, written).values(), _target_fate(plan), from_ms),
            unknown=self._unknown.reasons,
            accepted=self._accepted,
        )

    def _known(self, numbers: Iterable[int]) -> list[int]:
        return [number for number in numbers if number not in self._unknown]

    def _check_ids(
        self,
        positions: Mapping[TopicPartition, InputPosition | None],
        led: Mapping[TopicPartition, str],
    ) -> None:
        """Records topics that were recreated: positions hold offsets of the old ones.

        Brokers remove the offsets of a topic that is deleted; each position names all topics.
        """
        known: dict[TopicPartition, str] = {}
        for source, at in positions.items():
            for topic, topic_id in ({} if at is None else at.topics).items():
                known[TopicPartition(topic, source.partition)] = topic_id
        for source, topic_id in known.items():
            if led.get(source, topic_id) != topic_id:
                reason = f"{source.path} was deleted and recreated, and is not merged further"
                self._unknown.note(source, reason)

    def _from_ms(self, ranges: Collection[OffsetRange]) -> dict[int, int]:
        """Returns, by partition, the time from which on all logs hold what there was.

        That is after the window of what was removed, and one window more: the order of records is
        not that of their times.
        """
        from pyspark.sql import functions as f

        from_ms: dict[int, int] = {}
        for accepted in self._accepted:
            after = self._after(accepted.time_ms or 0)
            from_ms[accepted.partition] = max(from_ms.get(accepted.partition, 0), after)
        cut = [range_ for range_ in ranges if range_.start > 0]
        first: dict[TopicPartition, int] = {}
        if first_offsets := heads(cut):
            config, group = self._plan.config, self._plan.group
            records = read_records(self._spark, config, group, first_offsets)
            past_ms = f.least(_time_ms(), f.lit(now_in_ms()))
            is_late = f.col("topic") == self._plan.late
            first = first_values(records.where(~is_late), past_ms)
            # Late records are in no order at all.
            first |= greatest_values(records.where(is_late), past_ms)
        for range_ in cut:
            number, path = range_.partition.partition, range_.partition.path
            if range_.partition in first:
                after = self._after(first[range_.partition])
                from_ms[number] = max(from_ms.get(number, 0), after)
            elif range_.start < range_.end:
                self._unknown.note(
                    range_.partition, f"no record is among the first offsets of {path}"
                )
            else:
                self._unknown.note(range_.partition, f"{path} holds no record any more")
        return from_ms

    def _after(self, time_ms: int) -> int:
        window_ms = self._window_seconds * 1000
        late_ms = self._plan.allowed_lateness_ms
        return (time_ms + max(window_ms, late_ms)) // window_ms * window_ms + window_ms

    def _sums(
        self, ranges: Iterable[OffsetRange], fate: Column, from_ms: Mapping[int, int]
    ) -> dict[LinkKey, Sums]:
        held = [range_ for range_ in ranges if range_.span]
        if not held:
            return {}
        records = read_records(self._spark, self._plan.config, self._plan.group, held)
        records = records.where(_time_ms() >= by_partition(from_ms, 0))
        return sums_by_fate(records, fate, _time_ms(), self._window_seconds)


def _of(
    numbers: Collection[int], ranges: Mapping[TopicPartition, OffsetRange]
) -> dict[TopicPartition, OffsetRange]:
    return {
        partition: range_ for partition, range_ in ranges.items() if partition.partition in numbers
    }


def _source_fate(positions: Mapping[TopicPartition, InputPosition | None]) -> Column:
    """Returns OUT for written records; one may be, while others of lower offsets wait."""
    from pyspark.sql import functions as f

    offset, time_ms = f.col("offset"), own_time_ms()
    written = [
        (f.col("topic") == source.topic)
        & (f.col("partition") == source.partition)
        & (
            (offset < at.offset)
            | ((offset < at.read_to) & (time_ms <= at.written.time_ms - 1 + at.written.with_equal))
        )
        for source, at in positions.items()
        if at is not None
    ]
    is_written = reduce(lambda left, right: left | right, written, f.lit(False))
    return f.when(is_written, Fate.OUT).otherwise(Fate.WAITING)


def _time_ms() -> Column:
    """Returns the times of records at both ends: 1 for those without a timestamp at the source."""
    from pyspark.sql import functions as f

    mark = f.lit(NO_TIMESTAMP).cast("binary")
    is_copied_without = f.exists(
        f.col("headers"), lambda header: (header["key"] == LATE_HEADER) & (header["value"] == mark)
    )
    return f.when(is_copied_without, f.lit(1)).otherwise(own_time_ms())


def _target_fate(plan: MergerPlan) -> Column:
    from pyspark.sql import functions as f

    is_late = f.exists(f.col("headers"), lambda header: header["key"] == LATE_HEADER)
    return f.when(f.col("topic") == plan.target, Fate.OUT).when(is_late, Fate.LATE)
