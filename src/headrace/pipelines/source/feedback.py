"""What the driver learns from finished batches: how far event time has come, how large records are.

**Event time.** One event from a wrong clock must not move it: then all that is right would be late.
So the clock of a topic is the newest time that one event in a hundred has reached, and two at
least (a percentile watermark; Akidau et al., "The Dataflow Model", VLDB 2015, section 2.3), and
it never passes the clock at which the batch was planned. A batch of one event has only that one
to go by.

**Sizes.** A batch's bytes are not known before it is read. The size of a partition's records is
taken from its last batches, each worth half of the one after it, or from the last batch alone where
that is larger: an estimate rises at once, and falls slowly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.pipelines.source.report import RangeReport

SHARE = 0.01
_AT_LEAST = 2
_WEIGHT_OF_BEFORE = 0.5


@dataclass(frozen=True)
class RecordSizes:
    """Of the records of a partition: bytes of their values and how many, of late weighing most."""

    bytes: float = 0.0
    records: float = 0.0
    mean: float = 0.0

    def after(self, bytes_: int, records: int) -> RecordSizes:
        """With another batch, of at least one record."""
        total = self.bytes * _WEIGHT_OF_BEFORE + bytes_
        count = self.records * _WEIGHT_OF_BEFORE + records
        return RecordSizes(total, count, max(total / count, bytes_ / records))


@dataclass(frozen=True)
class Feedback:
    """What is known of a pipeline's topics since its checkpoint began.

    Attributes:
        sizes: of records, by topic and partition.
        event_us: how far event time has come, microseconds since 1970, by topic.
    """

    sizes: Mapping[str, Mapping[int, RecordSizes]] = field(default_factory=dict)
    event_us: Mapping[str, int] = field(default_factory=dict)

    def after(self, reports: Sequence[RangeReport], planned_ms: Mapping[str, int]) -> Feedback:
        """With a batch's reports; ``planned_ms`` is the clock it was planned at, by topic."""
        event_us = dict(self.event_us)
        for topic, clock_ms in planned_ms.items():
            samples = [
                (report.event_us, report.records)
                for report in reports
                if report.range.partition.topic == topic and report.event_us is not None
            ]
            if samples:
                newest = min(reached(samples), clock_ms * 1000)
                event_us[topic] = max(event_us.get(topic, newest), newest)
        return Feedback(self._sizes_after(reports), event_us)

    def _sizes_after(
        self, reports: Sequence[RangeReport]
    ) -> Mapping[str, Mapping[int, RecordSizes]]:
        read: dict[tuple[str, int], tuple[int, int]] = {}
        for report in reports:
            place = report.range.partition.topic, report.range.partition.partition
            bytes_, records = read.get(place, (0, 0))
            read[place] = bytes_ + report.bytes, records + report.records
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


def reached(samples: Iterable[tuple[int, int]]) -> int:
    """The newest time that a hundredth of the events has reached, and two at least.

    Args:
        samples: (time, how many events it stands for); not empty.
    """
    newest_first = sorted(samples, reverse=True)
    total = sum(events for _, events in newest_first)
    needed = min(total, max(_AT_LEAST, SHARE * total))
    seen = 0
    for time, events in newest_first:
        seen += events
        if seen >= needed:
            return time
    raise ValueError("no samples")
