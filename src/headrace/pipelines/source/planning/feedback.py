"""What the driver learns from finished batches: how far event time has come, how large records are.

**Event clocks** of partitions decide which events are late: :mod:`headrace.pipelines.late_data`.

**Sizes.** A batch's bytes are not known before it is read. The size of a partition's records is
taken from its last batches, each worth half of the one after it, or from the last batch alone where
that is larger: an estimate rises at once, and falls slowly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.model import TopicPartition
from headrace.pipelines.late_data.event_clock import EventClock, Sample
from headrace.pipelines.source.report import RangeReport

_WEIGHT_OF_BEFORE = 0.5


@dataclass(frozen=True)
class RecordSizes:
    """The size of a partition's records: bytes of values, and how many; new ones weigh most."""

    bytes: float = 0.0
    records: float = 0.0
    mean: float = 0.0

    def after(self, bytes_: int, records: int) -> RecordSizes:
        """Returns the sizes with those of another batch, of at least one record."""
        total = self.bytes * _WEIGHT_OF_BEFORE + bytes_
        count = self.records * _WEIGHT_OF_BEFORE + records
        return RecordSizes(total, count, max(total / count, bytes_ / records))


@dataclass(frozen=True)
class Feedback:
    """What is known of a pipeline's topics since its checkpoint began.

    Attributes:
        sizes: of records, by topic and partition.
        clocks: event clocks, by topic and partition.
    """

    sizes: Mapping[str, Mapping[int, RecordSizes]] = field(default_factory=dict)
    clocks: Mapping[str, Mapping[int, EventClock]] = field(default_factory=dict)

    def after(self, reports: Sequence[RangeReport], planned_ms: Mapping[str, int]) -> Feedback:
        """Returns what is known after a batch, which was planned at ``planned_ms``, by topic."""
        return Feedback(self._sizes_after(reports), self._clocks_after(reports, planned_ms))

    def with_clocks_from(self, event_us: Mapping[str, Mapping[int, int]]) -> Feedback:
        """Returns it with clocks at these event times, by topic, of partitions that have none."""
        clocks = {
            topic: {p: EventClock(us) for p, us in times.items()} | dict(self.clocks.get(topic, {}))
            for topic, times in event_us.items()
        }
        return Feedback(self.sizes, {**self.clocks, **clocks})

    def event_us(self, topic: str) -> dict[int, int]:
        """Returns the event time that partitions of ``topic`` have reached, as far as known."""
        return {
            p: clock.event_us
            for p, clock in self.clocks.get(topic, {}).items()
            if clock.event_us is not None
        }

    @property
    def newest_us(self) -> dict[str, int]:
        """By topic, the event time that the furthest of its partitions has reached."""
        reached = {topic: self.event_us(topic) for topic in self.clocks}
        return {topic: max(times.values()) for topic, times in reached.items() if times}

    def _clocks_after(
        self, reports: Sequence[RangeReport], planned_ms: Mapping[str, int]
    ) -> Mapping[str, Mapping[int, EventClock]]:
        samples: dict[TopicPartition, list[Sample]] = {}
        for report in reports:
            if report.event_times and report.range.partition.topic in planned_ms:
                samples.setdefault(report.range.partition, []).extend(report.event_times)
        clocks = {topic: dict(partitions) for topic, partitions in self.clocks.items()}
        for at, of_batch in samples.items():
            known = clocks.setdefault(at.topic, {})
            before = known.get(at.partition, EventClock())
            known[at.partition] = before.after(of_batch, planned_ms[at.topic] * 1000)
        return clocks

    def _sizes_after(
        self, reports: Sequence[RangeReport]
    ) -> Mapping[str, Mapping[int, RecordSizes]]:
        read: dict[tuple[str, int], tuple[int, int]] = {}
        for report in reports:
            place = report.range.partition.topic, report.range.partition.partition
            bytes_, records = read.get(place, (0, 0))
            # Offsets are planned: of a topic with envelopes, the size of an envelope counts.
            offsets = (report.envelopes or report.records) + report.tombstones
            read[place] = bytes_ + report.bytes, records + offsets
        sizes = {topic: dict(partitions) for topic, partitions in self.sizes.items()}
        for (topic, partition), (bytes_, records) in read.items():
            if records:
                known = sizes.setdefault(topic, {})
                known[partition] = known.get(partition, RecordSizes()).after(bytes_, records)
        return sizes

    def mean_bytes(self, topic: str, partitions: Iterable[int]) -> dict[int, float] | None:
        """Bytes of a record, of each of ``partitions``; None while nothing of the topic is known.

        A partition of which nothing is known is like the others.
        """
        known = self.sizes.get(topic)
        if not known:
            return None
        like_others = sum(s.bytes for s in known.values()) / sum(s.records for s in known.values())
        return {p: known[p].mean if p in known else like_others for p in partitions}
