"""Checks a topic before each batch, and refuses where to continue would lose or repeat records."""

from __future__ import annotations

import time
from collections.abc import Mapping

from headrace.errors import (
    DeletesExpiredError,
    PartitionsAddedError,
    RetentionPassedError,
    TopicRecreatedError,
    TopicTruncatedError,
)
from headrace.kafka.read.cluster import LivePositions
from headrace.kafka.read.log_cuts import Seen
from headrace.pipelines.source.offsets import NOTHING_READ, SourceOffset
from headrace.pipelines.source.spec import SourceSpec
from headrace.runtime.clock import now_in_ms

# First offsets cost another request for each look at the topic, and move slowly. A record that is
# deleted between two of these looks fails the task that reads it, so none is lost unnoticed.
EARLIEST_INTERVAL_SECONDS = 30.0
# Twice replica.lag.time.max.ms: by then a new leader has dropped followers that hold back the end
# which it reports, and an end before what was read means that records were lost.
TRUNCATION_GRACE_SECONDS = 60.0


class PositionCheck:
    """Compares the topic of one source with the offsets of its checkpoint."""

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self._earliest: Mapping[int, int] = {}
        self._earliest_at = -EARLIEST_INTERVAL_SECONDS
        self._whole: dict[int, Seen] = {}
        self._short_since: float | None = None

    def check(self, start: SourceOffset) -> LivePositions:
        """Returns the topic as it is now, if records can be read on from ``start``.

        Raises:
            BrokerUnreachableError: if the broker does not respond.
            TopicMissingError: if there is no such topic.
            RefusedError: if it is another topic, or records at ``start`` were deleted.
        """
        asked_at = self._earliest_at
        live = self._live(start)
        spec = self._spec
        if live.topic_id != start.topic_id:
            raise TopicRecreatedError(spec.topic, start.topic_id, live.topic_id, spec.pipeline)
        known, now = len(start.partitions), len(live.latest)
        if spec.planning.needs_same_partitions and known < now:
            raise PartitionsAddedError(spec.topic, known, now, spec.pipeline)
        for p, earliest in live.earliest.items():
            position = start.partitions.get(p, 0)  # a partition that is new began at 0
            if position < earliest:
                raise RetentionPassedError(spec.topic, p, position, earliest, spec.pipeline)
        self._refuse_cut(start, live)
        self._refuse_short(start, live)
        # With each new set of first offsets, so every 30 s at most: it costs further requests.
        if spec.decoding.null_key is not None and self._earliest_at > asked_at:
            self._refuse_expired_deletes(start, live)
        return live

    def _live(self, start: SourceOffset) -> LivePositions:
        now = time.monotonic()
        due = now - self._earliest_at >= EARLIEST_INTERVAL_SECONDS
        live = self._spec.cluster.live(self._spec.topic, with_earliest=due)
        # Of a new partition no earliest offset is known, and retention may have passed its first
        # one.
        if not due and (live.latest.keys() - start.partitions.keys()):
            live = self._spec.cluster.live(self._spec.topic)
        if live.earliest:
            self._earliest, self._earliest_at = live.earliest, now
        return LivePositions(live.topic_id, self._earliest, live.latest, live.epochs)

    def _refuse_expired_deletes(self, start: SourceOffset, live: LivePositions) -> None:
        """Refuses where compaction may have removed a tombstone that was not read yet.

        Kafka keeps one for a time after it was sent, and after what it deletes was still there.
        """
        cluster, topic = self._spec.cluster, self._spec.topic
        unread = {p: at for p, at in start.partitions.items() if at < live.latest.get(p, at)}
        if not unread or start.caught_up_ms == NOTHING_READ:
            return
        kept_ms = cluster.delete_retention_ms(topic)
        if kept_ms is None or start.caught_up_ms >= now_in_ms() - kept_ms:
            return
        # Records that are younger than the retention of deletes still have their tombstones.
        kept = cluster.offsets_since(topic, now_in_ms() - kept_ms)
        for p, at in unread.items():
            if at < kept.get(p, live.latest[p]):
                raise DeletesExpiredError(topic, p, at, kept_ms, self._spec.pipeline)

    def _refuse_cut(self, start: SourceOffset, live: LivePositions) -> None:
        """Refuses a truncated log; asks only about new leaders, as nothing else truncates one."""
        newly_led = {
            p: at
            for p, at in start.seen.items()
            if live.epochs.get(p, at.epoch) != at.epoch
            and self._whole.get(p) != Seen(at.offset, live.epochs[p])
        }
        if not newly_led:
            return
        for p, cut in self._spec.cluster.cuts(self._spec.topic, newly_led).items():
            raise self._truncated(p, newly_led[p].offset, cut)
        # The answer is final while this leader leads, so it is asked once.
        self._whole |= {p: Seen(at.offset, live.epochs[p]) for p, at in newly_led.items()}

    def _refuse_short(self, start: SourceOffset, live: LivePositions) -> None:
        """A broker that is a new leader may briefly report an older end than was acknowledged."""
        short = [p for p, at in start.partitions.items() if live.latest.get(p, at) < at]
        if not short:
            self._short_since = None
            return
        self._short_since = self._short_since or time.monotonic()
        if time.monotonic() - self._short_since > TRUNCATION_GRACE_SECONDS:
            raise self._truncated(short[0], start.partitions[short[0]], live.latest[short[0]])

    def _truncated(self, partition: int, position: int, cut: int) -> TopicTruncatedError:
        return TopicTruncatedError(self._spec.topic, partition, position, cut, self._spec.pipeline)
