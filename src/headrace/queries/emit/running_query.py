"""A running Spark query that sends matched events, and the commits of its batches."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import MatchedEventsRunningError
from headrace.kafka.client.client import high_watermarks, watermarks
from headrace.kafka.read.log_cuts import Seen
from headrace.links.source_epochs import source_epochs
from headrace.model import TopicPartition
from headrace.queries.emit.emitter_position import EmitterPosition
from headrace.queries.emit.outgoing import RuleColumns, outgoing_rows
from headrace.queries.emit.plan import EmitterPlan
from headrace.queries.emit.positions import (
    EmitterStart,
    commit_positions,
    committed_positions,
)
from headrace.spark.topic_query import DoneBatches, KafkaQuery, OutgoingRows, ReadTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_SECONDS = 300  # long, as events wait for a second or two at the end of a batch
# If queries change before a long batch ends: only completed batches move positions on.
_SHORT_BATCH_SECONDS = 5
_MIN_QUERY_SECONDS = 2.0  # changes of the registry within this time have effect together
_SETTLE_SECONDS = 0.3  # in-flight records of a stopped Spark query reach the topic in this time


class RunningQuery:
    """A Spark query that sends matched events; it starts at once. Used once, on one thread.

    Args:
        spark: the Spark session.
        columns: columns of the rules that are matched.
        matched: the topic of events, and the topic that matched events are sent to.
        start: the positions to start at, which this instance has committed.
        checkpoint: a folder that is emptied before the query, and removed after it.
        has_short_batches: whether queries change too often for batches of five minutes.

    Attributes:
        columns: columns of the rules that are matched.
        registry: the point of the registry at which the queries were last read. It is committed
            with each batch, because Kafka deletes records that earlier points need.
        has_short_batches: whether batches are short.
        already_sent: number of records of events after the committed positions that an earlier
            Spark query has sent.
    """

    def __init__(
        self,
        spark: SparkSession,
        columns: RuleColumns,
        matched: EmitterPlan,
        start: EmitterStart,
        checkpoint: Path,
        *,
        has_short_batches: bool,
    ) -> None:
        self.columns, self.has_short_batches = columns, has_short_batches
        self.registry = columns.rules.registry
        self.already_sent = sum(len(event.queries) for event in start.sent.values())
        self._matched, self._checkpoint = matched, checkpoint
        self._positions = dict(start.positions)
        self._target_ends = self._read_target_ends()
        self._batches = 0
        shutil.rmtree(checkpoint, ignore_errors=True)  # a killed process may have left it
        checkpoint.mkdir(parents=True)
        self._query = self._started(spark, start)
        self._began_at = time.monotonic()

    def _started(self, spark: SparkSession, start: EmitterStart) -> KafkaQuery:
        matched = self._matched
        offsets = {source: at.offset for source, at in start.positions.items()}
        source = ReadTopic(matched.config, matched.topic.name, offsets, matched.group)
        outgoing = partial(outgoing_rows, matched=matched, columns=self.columns, sent=start.sent)
        written = OutgoingRows(matched.config, outgoing)
        seconds = _SHORT_BATCH_SECONDS if self.has_short_batches else _BATCH_SECONDS
        trigger = {"realTime": f"{seconds} seconds"}
        return KafkaQuery(spark, matched.name, source, written, trigger, self._checkpoint)

    @property
    def is_active(self) -> bool:
        """Whether the query is running."""
        return self._query.is_active

    @property
    def failure(self) -> Exception | None:
        """The error that ended the query; ``None`` if it has not failed."""
        return self._query.failure

    @property
    def age_seconds(self) -> float:
        """Seconds since the query was started."""
        return time.monotonic() - self._began_at

    @property
    def has_ended_batches(self) -> bool:
        """Whether the positions of at least one batch are committed."""
        return self._batches > 0

    @property
    def may_end(self) -> bool:
        """Whether other rules may end the query: if batches are short, only after one of them."""
        if self.has_short_batches:
            return self.has_ended_batches
        return self.age_seconds >= _MIN_QUERY_SECONDS

    def commit_batches(self) -> DoneBatches | None:
        """Commits the positions of completed batches, and returns what they did, if there are any.

        Raises:
            MatchedEventsRunningError: if another process has committed positions.
            SourceChangedError: if a log was cut before a committed position.
        """
        # The ends before progress is read: records of events after the batch are behind them.
        ends = self._read_target_ends()
        done = self._query.progress()
        if done is not None:
            self.check_claim()
            self._positions = self._positions_behind(done)
            commit_positions(self._matched, self._positions)
            self._query.acknowledge(done)
            self._batches, self.already_sent = self._batches + 1, 0
        self._target_ends = ends
        return done

    def source_ends(self) -> dict[TopicPartition, int]:
        """Returns the ends of the partitions that the query reads."""
        marks = watermarks(self._matched.config, self._positions)
        return {source: end for source, (_, end) in marks.items()}

    def lags(self) -> dict[str, int]:
        """Returns the lags of the committed positions, in offsets, by ``topic/partition``."""
        return lags_of(self._positions, self.source_ends())

    def read_until(self, positions: Mapping[TopicPartition, EmitterPosition]) -> int:
        """Returns the number of offsets from the committed positions to these later positions."""
        offsets = {source: at.offset for source, at in positions.items()}
        return sum(lags_of(self._positions, offsets).values())

    def reads_another_topic(self) -> bool:
        """Returns whether a topic was recreated, or the topic of events has more partitions."""
        live, target_id = self._matched.live_with_target()
        ids = {(at.topic_id, at.target_id) for at in self._positions.values()}
        return ids != {(live.topic_id, target_id)} or live.partitions != len(self._positions)

    def check_claim(self) -> None:
        """Checks that the committed positions are those of this instance.

        Raises:
            MatchedEventsRunningError: if another instance has committed positions.
        """
        for source, at in committed_positions(self._matched, self._positions).items():
            if at.instance != self._positions[source].instance:
                raise MatchedEventsRunningError(self._matched.name, at.instance)

    def stop(self) -> None:
        """Ends the query at once, and waits until in-flight records are in the topic."""
        self._query.stop()
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        time.sleep(_SETTLE_SECONDS)

    def _positions_behind(self, done: DoneBatches) -> dict[TopicPartition, EmitterPosition]:
        seen = {source: Seen(at.offset, at.epoch) for source, at in self._positions.items()}
        epochs = source_epochs(self._matched.config, seen)
        positions: dict[TopicPartition, EmitterPosition] = {}
        for source, offset in done.positions.items():
            at = self._positions[source]
            queries = None if at.queries is None else replace(at.queries, registry=self.registry)
            scan_from = self._target_ends[self._matched.target(source)]
            positions[source] = replace(
                at, offset=offset, scan_from=scan_from, queries=queries, epoch=epochs[source]
            )
        return positions

    def _read_target_ends(self) -> Mapping[TopicPartition, int]:
        targets = set(map(self._matched.target, self._positions))
        return high_watermarks(self._matched.config, targets)


def lags_of(
    positions: Mapping[TopicPartition, EmitterPosition], offsets: Mapping[TopicPartition, int]
) -> dict[str, int]:
    """Returns how many offsets lie between positions and later offsets, by ``topic/partition``."""
    return {
        source.path: max(offsets.get(source, 0) - at.offset, 0) for source, at in positions.items()
    }
