"""Records that a user has accepted to leave out of a link: a file for each range, in the lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from headrace.errors import SinkError
from headrace.model import TopicPartition
from headrace.storage import files as storage
from headrace.storage.files import NO_OPTIONS, Options


@dataclass(frozen=True)
class AcceptedRange:
    """A partition continues after records that are left out.

    Attributes:
        topic: of the source.
        topic_id: of the source, when it was accepted.
        target_id: of the target's topic, when it was accepted.
        partition: its number.
        start: the first offset that is left out.
        end: the first offset after the range.
        accepted: when.
        reason: what had happened, as a sentence.
        target_end: the end of the target's partition then, where offsets of the source mean other
            records since: the topic was recreated, or its log was truncated. ``None``: they do
            not.
        time_ms: of a merger, the time up to which the target was written.
    """

    topic: str
    topic_id: str
    target_id: str
    partition: int
    start: int
    end: int
    accepted: datetime
    reason: str
    target_end: int | None = None
    time_ms: int | None = None

    @property
    def source(self) -> TopicPartition:
        """The partition of the source."""
        return TopicPartition(self.topic, self.partition)

    @property
    def offsets(self) -> int | None:
        """How many offsets are left out; ``None``: it is not known."""
        return (
            None if self.target_end is not None or self.end < self.start else self.end - self.start
        )


def in_force(
    ranges: Iterable[AcceptedRange],
    topic_ids: Mapping[TopicPartition, str],
    target_ids: Mapping[int, str],
) -> list[AcceptedRange]:
    """Returns the ranges whose offsets are still valid: not those of topics recreated since.

    Of a partition whose offsets were reused, only the ranges since then, that one first.

    Args:
        ranges: the oldest first.
        topic_ids: of the sources, as they are now.
        target_ids: of the target's topic, by number of the partition.
    """
    by_source: dict[TopicPartition, list[AcceptedRange]] = {}
    for range_ in ranges:
        ids = topic_ids.get(range_.source), target_ids.get(range_.partition)
        if ids == (range_.topic_id, range_.target_id):
            earlier = by_source.setdefault(range_.source, [])
            if range_.target_end is not None:
                earlier.clear()
            earlier.append(range_)
    kept = [range_ for ranges_ in by_source.values() for range_ in ranges_]
    return sorted(kept, key=lambda range_: range_.accepted)


# Made at import: msgspec crashes where several threads are the first to decode a class.
_RANGE = msgspec.json.Decoder(AcceptedRange)


class AcceptedFolder:
    """Reads and writes the ranges of one link below ``_headrace/links`` of the lake."""

    def __init__(self, lake: str, link: str, options: Options = NO_OPTIONS) -> None:
        """Neither opens nor makes the folder.

        Args:
            lake: root URI of the lake.
            link: its consumer group; all topics of a mirror have one.
            options: of the lake's storage.
        """
        self.uri = storage.join(lake, "_headrace", "links", link)
        self._options = options

    def write(self, range_: AcceptedRange) -> None:
        """Writes a range, or replaces it, atomically; it is durable when this returns."""
        uri = storage.join(self.uri, _name(range_))
        storage.write_bytes_atomic(uri, msgspec.json.encode(range_), self._options)

    def remove(self, range_: AcceptedRange) -> None:
        """Removes a range that was not committed after all."""
        storage.delete_files(self.uri, [_name(range_)], self._options)

    def read(self) -> list[AcceptedRange]:
        """Returns all ranges, the oldest first.

        Raises:
            SinkError: if one can't be read.
            OSError: if the lake can't be read.
        """
        names = storage.list_files(self.uri, self._options)
        ranges = [self._read(name) for name in names if name.endswith(".json")]
        return sorted(ranges, key=lambda range_: range_.accepted)

    def _read(self, name: str) -> AcceptedRange:
        uri = storage.join(self.uri, name)
        try:
            return _RANGE.decode(storage.read_bytes(uri, self._options))
        except ValueError as error:  # msgspec's errors are
            raise SinkError(uri, f"this range of a link can't be read: {error}") from error


def _name(range_: AcceptedRange) -> str:
    return f"{range_.topic}-{range_.partition}-{range_.start}-{range_.end}.json"
