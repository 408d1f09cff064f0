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

from headrace.queries.decoding import decode_json
from headrace.queries.result import QueryResult, ResultKind

_PART_BYTES = 512 * 2**10  # records have room for a megabyte
# Half the retention of the topic: so old is the record of a window that is written once more.
COPY_AFTER_MS = 12 * 3_600_000


class WindowResults(msgspec.Struct, tag="window", tag_field="kind", frozen=True):
    """Results of a window that has ended, or early ones.

    Attributes:
        topic: of the events, whose time has ended the window; empty: the clock has.
        due_us: what that time was at least, in microseconds since 1970. Where it has come so far in
            all partitions, no earlier window of the query can come any more.
        results: of the groups, or of some of them.
        original: offset of the record that was written first, if this one is a copy of it; None: it
            is no copy.
    """

    topic: str
    due_us: int
    results: list[QueryResult]
    original: int | None = None

    @property
    def is_early(self) -> bool:
        """Whether the window goes on."""
        return self.results[0].kind is ResultKind.EARLY

    def parts(self) -> Iterator[WindowResults]:
        """Yields it in parts that a record has room for."""
        some: list[QueryResult] = []
        size = 0
        for result in self.results:
            length = len(msgspec.json.encode(result))
            if some and size + length > _PART_BYTES:
                yield WindowResults(self.topic, self.due_us, some)
                some, size = [], 0
            some.append(result)
            size += length
        yield WindowResults(self.topic, self.due_us, some)


class PartitionClocks(msgspec.Struct, tag="clocks", tag_field="kind", frozen=True):
    """How far a partition of the matched topic is: what ended before is before this record.

    Attributes:
        partition: of the matched topic.
        event_us: the time of events, by topic, in microseconds since 1970.
        clock_us: the clock, in microseconds since 1970.
        ended: how many windows have ended in it.
    """

    partition: int
    event_us: Mapping[str, int]
    clock_us: int
    ended: int = 0


EndedRecord: TypeAlias = WindowResults | PartitionClocks

# Made at import: msgspec crashes where several threads are the first to decode a class.
_RECORD: msgspec.json.Decoder[EndedRecord] = msgspec.json.Decoder(EndedRecord)


def decode_ended(value: bytes) -> EndedRecord:
    """Returns the record with this value.

    Raises:
        ValueError: if it is none.
    """
    return decode_json(_RECORD, value)
