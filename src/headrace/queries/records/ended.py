"""The records of the topic of ended windows: results, and how far the partitions are.

======= ============ ==============================================================================
kind    key          partition
======= ============ ==============================================================================
window  query id     that of the key, and so that of the results
clocks  none         every one, behind the windows that ended by then
======= ============ ==============================================================================

Windows of one query come from all partitions of the matched topic, each in its own time. One that
waits long for its place among the results is written once more, before Kafka deletes its record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec

from headrace.events.times import EARLIEST_US, LATEST_US
from headrace.queries.records.decoding import decode_json
from headrace.queries.records.result import QueryResult, ResultKind, check_times

MatchesByPartition: TypeAlias = Mapping[int, Mapping[str, int]]
"""How many matches there are, by partition and topic of the events."""

_PART_BYTES = 512 * 2**10  # records have room for a megabyte
# Half the retention of the topic: so old is the record of a window that is written once more.
COPY_AFTER_MS = 12 * 3_600_000


class WindowResults(msgspec.Struct, tag="window", tag_field="kind", frozen=True):
    """Results of a window that has ended, or early ones.

    Attributes:
        partition: of the matched topic, which the window is in.
        topic: of the events.
        ordered_by: the topic whose event time has ended the window; empty: the clock has.
        due_us: what that time was at least, in microseconds since 1970. Where it has come so far in
            all partitions, no earlier window of the query can come any more.
        results: of the groups, or of some of them.
        matches: in the window, if it has ended; 0 in all records of a window but the first.
        original: offset of the record that was written first, if this one is a copy of it; None: it
            is no copy.
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
        """Whether the window goes on."""
        return self.results[0].kind is ResultKind.EARLY

    def parts(self) -> Iterator[WindowResults]:
        """Yields it in parts that a record has room for."""
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
    """How far a partition of the matched topic is: what ended before is before this record.

    Attributes:
        partition: of the matched topic.
        event_us: the time of events, by topic, in microseconds since 1970.
        clock_us: the clock up to which windows have ended, in microseconds since 1970; 0: not
            known, as records are to be taken before. It may go back where an instance starts.
        since_ms: when it began to count matches: again where its snapshots were deleted; in
            milliseconds since 1970.
        matches: in the windows that it has written to the partition of this record since then, by
            topic.
    """

    partition: int
    event_us: Mapping[str, int]
    clock_us: int
    since_ms: int = 0
    matches: Mapping[str, int] = {}

    def matches_since(self, before: PartitionClocks, topic: str) -> int:
        """Returns how many matches of a topic it has written since earlier clocks."""
        earlier = before.matches.get(topic, 0) if before.since_ms == self.since_ms else 0
        return self.matches.get(topic, 0) - earlier


EndedRecord: TypeAlias = WindowResults | PartitionClocks

# Made at import: msgspec crashes where several threads are the first to decode a class.
_RECORD: msgspec.json.Decoder[EndedRecord] = msgspec.json.Decoder(EndedRecord)


def decode_ended(value: bytes, partitions: int) -> EndedRecord:
    """Returns the record with this value.

    Args:
        value: of the record.
        partitions: how many the matched topic has.

    Raises:
        ValueError: if it is none.
    """
    record = decode_json(_RECORD, value)
    if record.partition not in range(partitions):
        raise ValueError(f"there is no partition {record.partition}")
    if isinstance(record, PartitionClocks):
        for time_us in (*record.event_us.values(), record.clock_us):
            if not EARLIEST_US <= time_us <= LATEST_US:
                raise ValueError(f"{time_us} is no time in microseconds since 1970")
    elif not record.results:
        raise ValueError("a window without results")
    else:
        check_times(record.results[0])  # those of all others are the same
    return record
