"""The offsets that the two ends of a link hold, as brokers report them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

from headrace.kafka.admin.topics import compacted
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import earliest_offsets, high_watermarks, latest_offsets
from headrace.links.target import naming_site
from headrace.model import OffsetRange, TopicPartition

SETTLE_SECONDS = 15.0  # transactions of a mirror and of a merger end after ten
_POLL_SECONDS = 0.2


class UnknownPartitions:
    """Numbers of partitions that can't be compared, each with the first reason that was noted."""

    def __init__(self) -> None:
        self._reasons: dict[int, str] = {}

    def note(self, partition: TopicPartition, reason: str) -> None:
        """Records why a partition can't be compared, unless a reason is known."""
        self._reasons.setdefault(partition.partition, reason)

    def note_all(self, reasons: Mapping[TopicPartition, str]) -> None:
        """Records the reasons of several partitions."""
        for partition, reason in reasons.items():
            self.note(partition, reason)

    def note_outside(self, held: OffsetRange, offset: int, done: str) -> None:
        """Records a source without the next record that must be ``done``: copied, or merged."""
        if not held.start <= offset <= held.end:
            path = held.partition.path
            offsets = f"has offsets {held.start} to {held.end - 1}"
            self.note(held.partition, f"{path} {offsets}, and must be {done} from {offset} on")

    def __contains__(self, number: int) -> bool:
        return number in self._reasons

    @property
    def numbers(self) -> set[int]:
        """Returns the numbers of the partitions."""
        return set(self._reasons)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Returns the reasons, as sentences."""
        return tuple(self._reasons.values())


def led_partitions(
    config: ClientConfig, site: str, topics: Collection[str]
) -> tuple[dict[TopicPartition, str], dict[TopicPartition, str]]:
    """Returns the topic ids of partitions that can be counted, and why others can't.

    Raises:
        AuthorizationError: if an ACL is missing at the site.
        BrokerUnreachableError: if its brokers do not answer.
    """
    with naming_site(site):
        live = describe(config, topics)
        compacted_topics = compacted(config, list(live))
    led: dict[TopicPartition, str] = {}
    unknown: dict[TopicPartition, str] = {}
    for name, topic in live.items():
        for partition in topic.all_partitions:
            if name in compacted_topics:
                unknown[partition] = (
                    f"{name} is compacted at site {site}: not all of its records stay"
                )
            elif partition.partition in topic.leaderless:
                unknown[partition] = f"no broker of site {site} leads {partition.path}"
            else:
                led[partition] = topic.topic_id
    return led, unknown


def settled_ranges(
    config: ClientConfig, site: str, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, OffsetRange], dict[TopicPartition, str]]:
    """Returns what partitions hold now, without anything still in a transaction.

    Waits up to 15 s for the end of transactions that are open.

    Returns:
        the ranges, and why those of other partitions are not known.

    Raises:
        AuthorizationError: if an ACL is missing at the site.
        BrokerUnreachableError: if its brokers do not answer.
    """
    partitions = list(partitions)
    deadline = time.monotonic() + SETTLE_SECONDS
    with naming_site(site):
        written = high_watermarks(config, partitions)
        while True:
            ends = {
                partition: end for partition, (end, _) in latest_offsets(config, partitions).items()
            }
            open_ = {partition for partition, end in ends.items() if end < written[partition]}
            if not open_ or time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        firsts = earliest_offsets(config, partitions)
    reason = "a transaction is open at its end"
    return _ranges(firsts, ends, open_), {
        partition: f"{partition.path}: {reason}" for partition in open_
    }


def ranges_now(
    config: ClientConfig, site: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, OffsetRange]:
    """Returns what partitions hold now, up to the first transaction that is open.

    Raises:
        AuthorizationError: if an ACL is missing at the site.
        BrokerUnreachableError: if its brokers do not answer.
    """
    with naming_site(site):
        firsts = earliest_offsets(config, partitions)
        ends = {
            partition: end for partition, (end, _) in latest_offsets(config, partitions).items()
        }
    return _ranges(firsts, ends)


def _ranges(
    firsts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    left_out: Collection[TopicPartition] = (),
) -> dict[TopicPartition, OffsetRange]:
    return {
        partition: OffsetRange(partition, min(firsts[partition], end), end)
        for partition, end in ends.items()
        if partition not in left_out
    }
