"""Compares a topic with its copy, record by record."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import SpreadsUnknownError, TopicChangeRefusedError
from headrace.kafka.client.headers import headers_of
from headrace.kafka.client.offsets import earliest_offsets
from headrace.kafka.origin import ORIGIN
from headrace.kafka.read.range_reader import Record, read_records
from headrace.ledger.sums import Sums
from headrace.links.change.places import Placed
from headrace.links.change.plan import ChangePlan
from headrace.links.change.standing import ChangedPartition, copied_partitions
from headrace.links.change.topics import ranges_of
from headrace.model import OffsetRange, TopicPartition
from headrace.spark.header_columns import TIMESTAMP

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class PartitionCheck:
    """A partition of the old topic, and its copies.

    Attributes:
        partition: its number.
        start: the first offset that is compared.
        end: the offset after the last one: the next one to copy.
        records: that it has there.
        copies: of these, in the new topic.
        is_equal: whether number, bytes and hashes of both are equal: of offset, key, value,
            headers, timestamp and the partition of the new topic.
    """

    partition: int
    start: int
    end: int
    records: int
    copies: int
    is_equal: bool


@dataclass(frozen=True)
class ChangeCheck:
    """Whether all records of a topic are in its copy, each once and in its order.

    Attributes:
        topic: that is copied.
        to: its copy.
        partitions: of the old topic.
        records: of the old topic that were compared.
        copies: of the new topic that were compared.
        behind: offsets of the old topic that are not copied yet.
        out_of_order: copies that stand behind a later record of the same partition of the old
            topic, or repeat one.
        own_records: records of the new topic that are no copies.
        behind_own: copies that stand behind such a record of their partition.
        unreadable: records that are no events of the new topic, and keep their keys.
        unknown: why not all can be compared; empty: it was.
        is_whole: whether nothing differs, nothing is out of order, and nothing is left to copy.
    """

    topic: str
    to: str
    partitions: tuple[PartitionCheck, ...]
    records: int
    copies: int
    behind: int
    out_of_order: int
    own_records: int
    behind_own: int
    unreadable: int
    unknown: str
    is_whole: bool


@dataclass
class _Copies:
    """What the new topic has."""

    sums: defaultdict[int, Sums] = field(default_factory=lambda: defaultdict(Sums))
    out_of_order: int = 0
    own: int = 0
    behind_own: int = 0


def compare(plan: ChangePlan) -> ChangeCheck:
    """Reads both topics, and compares them. Changes nothing.

    Raises:
        TopicMissingError: if a topic is not in Kafka.
        BrokerUnreachableError: if the brokers do not answer.
        AuthorizationError: if an ACL is missing.
        RecordsUnreadableError: if records are damaged.
        TopicChangeRefusedError: if spreads of a record are not known yet.
    """
    # Positions before the ends of the new topic: their copies are in it, as of one transaction.
    parts = {at.partition: at for at in copied_partitions(plan)}
    ranges = {number: _copied_range(plan, at) for number, at in parts.items()}
    new = ranges_of(plan.target, plan.new)
    with plan.following():
        expected, unreadable = _expected(plan, ranges)
    copies = _copies(plan, ranges, new)
    checks = tuple(
        PartitionCheck(
            number,
            range_.start,
            range_.end,
            expected[number].number,
            copies.sums[number].number,
            expected[number] == copies.sums[number],
        )
        for number, range_ in sorted(ranges.items())
    )
    behind = sum(at.behind for at in parts.values())
    unknown = _unknown(plan, ranges, new)
    are_equal = all(check.is_equal for check in checks)
    return ChangeCheck(
        plan.old,
        plan.new,
        checks,
        sum(check.records for check in checks),
        sum(check.copies for check in checks),
        behind,
        copies.out_of_order,
        copies.own,
        copies.behind_own,
        unreadable,
        unknown,
        are_equal and not (behind or copies.out_of_order or copies.behind_own or unknown),
    )


def _copied_range(plan: ChangePlan, at: ChangedPartition) -> OffsetRange:
    place = TopicPartition(plan.old, at.partition)
    return OffsetRange(place, at.first, max(at.first, at.copied or 0))


def _expected(
    plan: ChangePlan, ranges: Mapping[int, OffsetRange]
) -> tuple[defaultdict[int, Sums], int]:
    """Returns what the new topic should have, by partition of the old one; what are no events."""
    sums: defaultdict[int, Sums] = defaultdict(Sums)
    unreadable = 0
    for record in read_records(plan.source, plan.group, ranges.values()):
        message: Any = record
        place = _place(plan, message)
        unreadable += not place.is_event
        headers = headers_of(record) or ()
        time_ms = record.timestamp()[1]
        sums[message.partition()] += _sums(
            place.partition, record.offset(), place.key, record.value(), headers, time_ms
        )
    return sums, unreadable


def _place(plan: ChangePlan, message: Any) -> Placed:
    try:
        return plan.places.of(message)
    except SpreadsUnknownError as error:
        at = f"{TopicPartition.of(message).path} at offset {message.offset()}"
        raise TopicChangeRefusedError(plan.old, plan.new, f"{at} has no place: {error}") from error


def _copies(plan: ChangePlan, ranges: Mapping[int, OffsetRange], new: list[OffsetRange]) -> _Copies:
    copies = _Copies()
    last: dict[tuple[int, int], int] = {}
    with_own: set[int] = set()
    for record in read_records(plan.target, plan.group, new):
        number = TopicPartition.of(record).partition
        origin = plan.origin_of(record)
        if origin is None:
            copies.own += 1
            with_own.add(number)
            continue
        copies.behind_own += number in with_own
        copies.out_of_order += last.get((number, origin.partition), -1) >= origin.offset
        last[number, origin.partition] = origin.offset
        range_ = ranges.get(origin.partition)
        if range_ is not None and range_.start <= origin.offset < range_.end:
            headers, time_ms = _original(record)
            copies.sums[origin.partition] += _sums(
                number, origin.offset, record.key(), record.value(), headers, time_ms
            )
    return copies


def _original(record: Record) -> tuple[Headers, int]:
    """Returns headers and timestamp of the record that another one is a copy of."""
    headers, time_ms = headers_of(record) or (), record.timestamp()[1]
    at = max(index for index, (name, _) in enumerate(headers) if name == ORIGIN)
    # A timestamp that can't be written is in a header behind the origin.
    kept = [value for name, value in headers[at + 1 :] if name == TIMESTAMP and value is not None]
    return headers[:at], int(kept[-1]) if kept else time_ms


def _sums(
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    time_ms: int,
) -> Sums:
    digest = hashlib.blake2b(b"%d %d %d" % (partition, offset, time_ms), digest_size=8)
    parts = [key, value]
    for name, content in headers:
        parts += [name.encode(), content]
    for part in parts:
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return Sums(1, len(value or b""), int.from_bytes(digest.digest(), "big"))


def _unknown(plan: ChangePlan, ranges: Mapping[int, OffsetRange], new: list[OffsetRange]) -> str:
    cut = sum(range_.start for range_ in new)
    if cut:
        return f"{plan.new} has deleted {cut:,} offsets: what it had is not known"
    places = [range_.partition for range_ in ranges.values()]
    firsts = earliest_offsets(plan.source, places)
    if any(firsts[range_.partition] > range_.start for range_ in ranges.values()):
        return f"{plan.old} has deleted records meanwhile; run the command again"
    return ""
