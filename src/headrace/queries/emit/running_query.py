"""A running Spark query that sends matched events, and the commits of its batches."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import MatchedEventsRunningError
from headrace.queries.emit.emitter_position import EmitterPosition
from headrace.queries.emit.outgoing import RuleColumns, outgoing_rows
from headrace.queries.emit.plan import EmitterPlan
from headrace.queries.emit.positions import (
    EmitterStart,
    commit_positions,
    committed_positions,
)
from headrace.queries.match.held import RegistryPoint
from headrace.spark.claimed_query import ClaimedQuery, Claims
from headrace.spark.topic_query import KafkaQuery, OutgoingRows, ReadTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_SECONDS = 300  # long, as events wait for a second or two at the end of a batch
# If queries change before a long batch ends: only completed batches move positions on.
_SHORT_BATCH_SECONDS = 5
_MIN_QUERY_SECONDS = 2.0  # changes of the registry within this time have effect together
_SETTLE_SECONDS = 0.3  # in-flight records of a stopped Spark query reach the topic in this time


class RunningQuery(ClaimedQuery[EmitterPosition]):
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
        has_short_batches: whether batches are short.
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
        self._matched, self._sent = matched, start.sent
        claims = Claims(
            matched.config,
            matched.config,
            matched.target,
            matched.live_with_target,
            readable=lambda events: events.all_partitions,
            committed=partial(committed_positions, matched),
            commit=partial(commit_positions, matched),
            commit_seconds=_BATCH_SECONDS,
            taken_by=partial(MatchedEventsRunningError, matched.name),
        )
        [target_id] = {at.target_id for at in start.positions.values()}
        sent_to = {source: event.offset + 1 for source, event in start.sent.items()}
        run = partial(self._run, spark)
        super().__init__(claims, start.positions, target_id, sent_to, run, checkpoint)

    def _run(self, spark: SparkSession, checkpoint: Path) -> KafkaQuery:
        matched = self._matched
        offsets = {source: at.offset for source, at in self.positions.items()}
        source = ReadTopic(matched.config, matched.topic.name, offsets, matched.group)
        outgoing = partial(outgoing_rows, matched=matched, columns=self.columns, sent=self._sent)
        written = OutgoingRows(matched.config, outgoing)
        seconds = _SHORT_BATCH_SECONDS if self.has_short_batches else _BATCH_SECONDS
        trigger = {"realTime": f"{seconds} seconds"}
        return KafkaQuery(spark, matched.name, source, written, trigger, checkpoint)

    @property
    def already_sent(self) -> int:
        """Records after the committed positions that an earlier Spark query has sent."""
        sent = () if self.has_ended_batches else self._sent.values()
        return sum(len(event.queries) for event in sent)

    @property
    def may_end(self) -> bool:
        """Whether other rules may end the query: if batches are short, only after one of them."""
        if self.has_short_batches:
            return self.has_ended_batches
        return time.monotonic() - self.started_at >= _MIN_QUERY_SECONDS

    def note_registry(self, registry: RegistryPoint) -> None:
        """Notes the point at which queries were last read; it is committed with the next batch.

        Kafka deletes records that earlier points need.
        """
        self.positions = {
            source: replace(at, queries=at.queries and replace(at.queries, registry=registry))
            for source, at in self.positions.items()
        }

    def stop(self) -> None:
        """Ends the query at once, and waits until in-flight records are in the topic."""
        super().stop()
        time.sleep(_SETTLE_SECONDS)
