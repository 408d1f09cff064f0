"""The records of the topic of ended windows: their results, and the clocks of the partitions.

======= ============ ==============================================================================
kind    key          partition
======= ============ ==============================================================================
window  query id     chosen by the key; the results go to the partition with the same number
clocks  none         all partitions, after the windows that ended by then
======= ============ ==============================================================================

The windows of a query come from all partitions of the matched topic, which are not equally far. A
window that waits long for its turn in the results is written again, before Kafka deletes its
record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec

from headrace.events.times import TimeMs, TimeUs
from headrace.queries.records.decoding import decode_json
from headrace.queries.records.result import QueryResult, ResultKind, with_times_in_utc

MatchesByPartition: TypeAlias = Mapping[int, Mapping[str, int]]
"""Numbers of matches, by partition and topic of the events."""

_PART_BYTES = 512 * 2**10  # a record may have a megabyte
# A window that waits is written again once its record is this old: half the topic's retention.
COPY_AFTER_MS = 12 * 3_600_000


class WindowResults(msgspec.Struct, tag="window", tag_field="kind", frozen=True):
    """The final results of an ended window, or early results of an open one.

    Attributes:
        partition: number of the matched topic's partition that the window is in.
        topic: name of the topic of the events.
        ordered_by: the topic whose event clock closed the window; empty if the instance's clock
            did.
        due_us: the time that this clock had reached at least, in microseconds since 1970. Once all
            partitions have reached it, no earlier window of the query can follow.
        results: results of all groups, or of some if the window has several records.
        matches: matches in the window, if it has ended; 0 in all records of a window but the first.
        original: the offset of the window's first record, if this record is a copy of it; ``None``
            if it is no copy.
    """

    partition: int
    topic: str
    ordered_by: str
    due_us: int
    results: list[QueryResult]
    matches: int = 0
    original: int | None = None

    @property
    def is_early(self) -> bool:
        """Whether the window is still open."""
        return self.results[0].kind is ResultKind.EARLY

    def parts(self) -> Iterator[WindowResults]:
        """Yields the window in parts that fit into a record each."""
        some: list[QueryResult] = []
        size, matches = 0, self.matches
        for result in self.results:
            length = len(msgspec.json.encode(result))
            if some and size + length > _PART_BYTES:
                yield msgspec.structs.replace(self, results=some, matches=matches)
                some, size, matches = [], 0, 0
            some.append(result)
            size += length
        yield msgspec.structs.replace(self, results=some, matches=matches)


class PartitionClocks(msgspec.Struct, tag="clocks", tag_field="kind", frozen=True):
    """The clocks of a partition of the matched topic. Windows that ended by then come before it.

    Attributes:
        partition: number of the matched topic's partition.
        event_us: the event clock, by topic, in microseconds since 1970.
        clock_us: the time up to which the instance's clock has ended windows, in microseconds
            since 1970; 0 if it is not known, because earlier records must be taken first. It may
            go back when an instance starts.
        since_ms: when the count of ``matches`` began, in milliseconds since 1970; it begins again
            if the partition's snapshots were deleted.
        matches: matches in the windows that the partition has written to the partition of this
            record since then, by topic.
    """

    partition: int
    event_us: Mapping[str, TimeUs]
    clock_us: TimeUs
    since_ms: TimeMs = 0
    matches: Mapping[str, int] = {}

    def matches_since(self, before: PartitionClocks, topic: str) -> int:
        """Returns how many matches of a topic the partition has written since earlier clocks."""
        earlier = before.matches.get(topic, 0) if before.since_ms == self.since_ms else 0
        return self.matches.get(topic, 0) - earlier


EndedRecord: TypeAlias = WindowResults | PartitionClocks

# Made at import: msgspec crashes where several threads are the first to decode a class.
_RECORD: msgspec.json.Decoder[EndedRecord] = msgspec.json.Decoder(EndedRecord)


def decode_ended(value: bytes, partitions: int) -> EndedRecord:
    """Returns the record of the topic of ended windows that has this value.

    Args:
        value: the value of the record.
        partitions: the number of partitions of the matched topic.

    Raises:
        ValueError: if the value is not valid for such a record.
    """
    record = decode_json(_RECORD, value)
    if record.partition not in range(partitions):
        raise ValueError(f"there is no partition {record.partition}")
    if isinstance(record, PartitionClocks):
        return record
    if not record.results:
        raise ValueError("a window without results")
    results = [with_times_in_utc(result) for result in record.results]
    return msgspec.structs.replace(record, results=results)
