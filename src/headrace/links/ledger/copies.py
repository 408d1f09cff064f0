"""A topic whose copies name their records: one of a mirror, or of a target of a dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from headrace.kafka.admin.topics import topic_states
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.read.resume import Position
from headrace.ledger.sums import Fate, Sums
from headrace.links.accepted import AcceptedRange, in_force
from headrace.links.ledger.book import LinkCount
from headrace.links.ledger.ends import UnknownPartitions, led_partitions, ranges_now, settled_ranges
from headrace.links.ledger.records import (
    LinkKey,
    by_partition,
    first_values,
    heads,
    read_records,
    sums_by_fate,
)
from headrace.links.target import naming_site
from headrace.model import OffsetRange, TopicPartition
from headrace.runtime.clock import now_in_ms
from headrace.spark.header_columns import last_origin, own_time_ms, time_ms

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_RECREATED = "was deleted and recreated"


@dataclass(frozen=True)
class CopiedTopic:
    """A topic and its copy, with the clusters of both.

    Attributes:
        group: with which Spark's readers begin the names of their groups.
        source_site: the site of the topic.
        target_site: where the copies are.
        origin_site: the site that the copies name as the one of their records.
        source: librdkafka's settings of the source's cluster, secrets revealed.
        target: those of the target's cluster.
        topic: of the source.
        copy: the topic of the target.
        positions: reads the committed positions of partitions of the source; partitions that were
            never started are omitted.
        is_sent: returns, by the headers and columns of records, whether they must be copied.
        accepted: reads the ranges that were left out, the oldest first.
    """

    group: str
    source_site: str
    target_site: str
    origin_site: str
    source: ClientConfig = field(repr=False)
    target: ClientConfig = field(repr=False)
    topic: str
    copy: str
    positions: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Position]]
    is_sent: Callable[[Column], Column]
    accepted: Callable[[], Sequence[AcceptedRange]]

    def count(self, spark: SparkSession, window_seconds: int) -> LinkCount:
        """Counts the records of both ends.

        Raises:
            AuthorizationError: if an ACL is missing at a site.
            BrokerUnreachableError: if the brokers of a site do not answer.
            NotCountedError: if records were removed meanwhile, or can't be read.
        """
        return _Counting(spark, self, window_seconds).count()


class _Counting:
    """Counts once. Partition n of the source is compared with partition n of the copy."""

    def __init__(self, spark: SparkSession, link: CopiedTopic, window_seconds: int) -> None:
        self._spark, self._link, self._window_seconds = spark, link, window_seconds
        self._unknown = UnknownPartitions()
        self._positions: dict[int, int] = {}
        self._target: dict[int, OffsetRange] = {}
        self._source: dict[int, OffsetRange] = {}
        # Of partitions whose copy has lost its beginning: offset at the source of the first record
        # that still has a copy.
        self._first_copies: dict[int, int] = {}
        self._accepted: list[AcceptedRange] = []
        self._is_limited_by_size = False

    def count(self) -> LinkCount:
        """Returns the count."""
        link = self._link
        self._read_ends()
        for loss in self._accepted:
            if loss.target_end is not None:  # offsets were reused: earlier ones mean other records
                self._start_at(self._source, loss.partition, loss.end)
                self._start_at(self._target, loss.partition, loss.target_end)
        self._find_first_copies()
        source = self._sums(link.source, self._source.values(), self._source_fate())
        self._note_without_time(source)
        return LinkCount(
            {number: range_.partition.path for number, range_ in self._target.items()},
            source,
            self._sums(link.target, self._target.values(), self._target_fate()),
            is_exact=True,
            unknown=self._unknown.reasons,
            accepted=self._accepted,
        )

    def _read_ends(self) -> None:
        """Reads the positions, what was left out, the ends of the target, those of the source.

        The order is that of the contract in :mod:`headrace.links.ledger`.
        """
        link = self._link
        sources, copies = self._readable()
        positions = link.positions(sources)
        for source, at in positions.items():
            if at.topic_id not in {"", sources[source]}:
                self._unknown.note(source, f"{source.path} {_RECREATED}, and is not copied further")
        known = [source for source in sources if source.partition not in self._unknown]
        accepted = in_force(link.accepted(), sources, copies)
        target, open_ = settled_ranges(link.target, link.target_site, map(self._copy_of, known))
        self._unknown.note_all(open_)
        self._target = {copy.partition: range_ for copy, range_ in target.items()}
        counted = [source for source in known if source.partition in self._target]
        ranges = ranges_now(link.source, link.source_site, counted)
        for source, range_ in ranges.items():
            at = positions.get(source, Position(range_.start))
            self._unknown.note_outside(range_, at.offset, "copied")
            if source.partition in self._unknown:
                del self._target[source.partition]
            else:
                self._source[source.partition] = range_
                self._positions[source.partition] = at.offset
        self._accepted = [
            range_
            for range_ in accepted
            # What was not committed after it was written is not left out.
            if range_.partition in self._source and range_.end <= self._positions[range_.partition]
        ]

    def _readable(self) -> tuple[dict[TopicPartition, str], dict[int, str]]:
        """Returns the partitions of the source that can be counted at both ends, with topic ids.

        The other ids are those of the copies, by number.
        """
        link = self._link
        sources, unread = led_partitions(link.source, link.source_site, [link.topic])
        copies, unread_copies = led_partitions(link.target, link.target_site, [link.copy])
        self._unknown.note_all(unread | unread_copies)
        if not sources and not unread:
            missing = TopicPartition(link.topic, 0)
            self._unknown.note(
                missing, f"there is no topic {link.topic} at site {link.source_site}"
            )
        for copy in map(self._copy_of, sources):
            if copy not in copies:
                self._unknown.note(copy, f"there is no {copy.path} at site {link.target_site}")
        return (
            {
                partition: id_
                for partition, id_ in sources.items()
                if partition.partition not in self._unknown
            },
            {copy.partition: topic_id for copy, topic_id in copies.items()},
        )

    def _copy_of(self, source: TopicPartition) -> TopicPartition:
        return TopicPartition(self._link.copy, source.partition)

    def _find_first_copies(self) -> None:
        """Finds the first record that still has a copy, where the target has removed copies."""
        cut = {n: range_ for n, range_ in self._target.items() if range_.start > 0}
        if not (first_offsets := heads(cut.values())):
            first = {}
        else:
            link = self._link
            records = read_records(self._spark, link.target, link.group, first_offsets)
            offset = last_origin(_headers(), link.origin_site, link.topic)
            first = first_values(records, offset)
        for number, range_ in cut.items():
            if range_.partition in first:
                self._first_copies[number] = first[range_.partition]
            elif range_.start == range_.end:  # no copy is left
                self._first_copies[number] = self._positions[number]
            else:
                path = range_.partition.path
                self._unknown.note(
                    range_.partition, f"no copy is among the first offsets of {path}"
                )
                del self._source[number], self._target[number]

    def _note_without_time(self, source: Mapping[LinkKey, Sums]) -> None:
        """Notes expired records without a timestamp: retention counts from the time of copying."""
        for number, window, fate in source:
            if fate is Fate.EXPIRED and window == 0 and not self._is_limited_by_size:
                self._unknown.note(
                    self._source[number].partition,
                    f"copies of records without a timestamp were deleted from {self._link.copy},"
                    " and their age is not known: retention may have deleted them early",
                )

    def _start_at(self, ranges: dict[int, OffsetRange], number: int, start: int) -> None:
        range_ = ranges[number]
        ranges[number] = OffsetRange(
            range_.partition, min(max(range_.start, start), range_.end), range_.end
        )

    def _sums(
        self, config: ClientConfig, ranges: Iterable[OffsetRange], fate: Column
    ) -> dict[LinkKey, Sums]:
        held = [range_ for range_ in ranges if range_.span]
        if not held:
            return {}
        records = read_records(self._spark, config, self._link.group, held)
        return sums_by_fate(records, fate, time_ms(_headers()), self._window_seconds)

    def _source_fate(self) -> Column:
        from pyspark.sql import functions as f

        offset, number = f.col("offset"), f.col("partition")
        ranges = [
            (number == range_.partition) & offset.between(range_.start, range_.end - 1)
            for range_ in self._accepted
        ]
        is_done = offset < by_partition(self._positions, 0)
        return (
            f.when(reduce(lambda left, right: left | right, ranges, f.lit(False)), Fate.LEFT_OUT)
            .when(~self._link.is_sent(_headers()), Fate.FILTERED)
            .when((offset < by_partition(self._first_copies, 0)) & self._is_old(), Fate.EXPIRED)
            .when(is_done, Fate.OUT)
            .otherwise(Fate.WAITING)
        )

    def _is_old(self) -> Column:
        """Returns whether the target's retention may have deleted the copy of a record by now."""
        from pyspark.sql import functions as f

        link = self._link
        if not self._first_copies:
            return f.lit(False)
        with naming_site(link.target_site):
            config = topic_states(link.target, [link.copy])[link.copy].config
        kept_ms = int(config["retention.ms"])
        self._is_limited_by_size = int(config["retention.bytes"]) >= 0
        if self._is_limited_by_size:  # it may have deleted a copy of any age
            return f.lit(True)
        is_old = own_time_ms() < now_in_ms() - kept_ms
        return f.coalesce(is_old, f.lit(False)) if kept_ms >= 0 else f.lit(False)

    def _target_fate(self) -> Column:
        from pyspark.sql import functions as f

        link = self._link
        starts = {number: range_.start for number, range_ in self._source.items()}
        origin = last_origin(_headers(), link.origin_site, link.topic)
        is_done = origin < by_partition(self._positions, 0)
        counted = f.when(is_done, Fate.OUT).otherwise(Fate.WAITING)
        return f.when(origin >= by_partition(starts, 0), counted)


def _headers() -> Column:
    from pyspark.sql import functions as f

    return f.col("headers")
