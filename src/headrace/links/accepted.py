"""Records that a user has accepted to leave out of a link: a file for each range, in the lake.

The file is written before the position after the range is committed: a crash between the two leaves
a file, which the ledger ignores until the position has passed its range. The other way round, the
ledger would miss records without a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from headrace.errors import LinkRunningError, SinkError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.group.groups import describe_group
from headrace.model import TopicPartition
from headrace.project.services import lake_uri
from headrace.runtime.extras import require_extra
from headrace.settings import Settings
from headrace.storage import files as storage
from headrace.storage.files import NO_OPTIONS, Options, is_local
from headrace.storage.s3 import is_s3


@dataclass(frozen=True)
class AcceptedRange:
    """A range of a partition that a user has accepted to leave out of a link.

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
        """Returns the partition of the source."""
        return TopicPartition(self.topic, self.partition)

    @property
    def offsets(self) -> int | None:
        """Returns how many offsets are left out; ``None``: it is not known."""
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
        """Keeps the URI; the folder is neither opened nor created.

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
        ranges: list[AcceptedRange] = []
        for name in storage.list_files(self.uri, self._options):
            if name.endswith(".json"):
                uri = storage.join(self.uri, name)
                try:
                    ranges.append(_RANGE.decode(storage.read_bytes(uri, self._options)))
                except ValueError as error:  # msgspec's errors are
                    reason = f"this range of a link can't be read: {error}"
                    raise SinkError(uri, reason) from error
        return sorted(ranges, key=lambda range_: range_.accepted)


def _name(range_: AcceptedRange) -> str:
    return f"{range_.topic}-{range_.partition}-{range_.start}-{range_.end}.json"


def accepted_folder(settings: Settings, group: str) -> AcceptedFolder:
    """Returns the folder of a link, which its consumer group names.

    Raises:
        ExtraMissingError: if an extra is not installed that the lake's storage needs.
        ServerStartError: if the lake is on the embedded HDFS, which is down.
    """
    lake = lake_uri(settings)
    if not is_local(lake) and not is_s3(lake):
        require_extra("spark")  # brings the client of HDFS
    return AcceptedFolder(lake, group, settings.storage)


@dataclass(frozen=True)
class AcceptedLoss:
    """A partition of a link that continues after records that are lost.

    Attributes:
        kind: of the link: ``mirror``, ``merger`` or ``dispatcher``.
        range_: which records.
        site: the target of a dispatcher; empty for others.
        counts_lost: whether its kind of link says how many offsets are lost, not why.
    """

    kind: str
    range_: AcceptedRange
    site: str = ""
    counts_lost: bool = False

    def to_json(self) -> dict[str, object]:
        """Returns what the kind of link has."""
        range_ = self.range_
        return {
            "partition": range_.source.path,
            "next_offset": range_.start,
            "accepted_offset": range_.end,
            **({"lost": range_.offsets} if self.counts_lost else {"reason": range_.reason}),
            **({"site": self.site} if self.site else {}),
        }


def refuse_running(kind: str, link: str, config: ClientConfig, group: str) -> None:
    """Refuses to change positions of a link while members of its group would overwrite them.

    Raises:
        LinkRunningError: if an instance runs.
        BrokerUnreachableError: if the brokers do not answer.
    """
    members = describe_group(config, group).members
    if members:
        raise LinkRunningError(kind, link, len(members))


def accept(
    kind: str,
    folder: AcceptedFolder,
    range_: AcceptedRange,
    commit: Callable[[], None],
    site: str = "",
    *,
    counts_lost: bool = False,
) -> AcceptedLoss:
    """Writes the range that a link leaves out, then commits the position after it.

    What was written is removed if the commit fails.

    Args:
        kind: of the link.
        folder: of the link.
        range_: the records.
        commit: commits the position after them.
        site: the target of a dispatcher.
        counts_lost: whether the kind says how many offsets are lost, not why.

    Raises:
        SinkError: if the lake can't be written; nothing is committed then.
    """
    try:
        folder.write(range_)
    except OSError as error:
        raise SinkError(folder.uri, str(error)) from error
    try:
        commit()
    except BaseException:
        folder.remove(range_)
        raise
    return AcceptedLoss(kind, range_, site, counts_lost)
