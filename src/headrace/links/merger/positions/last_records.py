"""The last records of the target: they show what was merged if no position is committed."""

from __future__ import annotations

from collections.abc import Collection

from headrace.kafka.client.clients import ClientConfig, consumer
from headrace.kafka.client.offsets import earliest_offsets, latest_offsets
from headrace.kafka.read.range_reader import read_ranges
from headrace.model import OffsetRange, TopicPartition

_FIRST_LOOK_OFFSETS = 16  # a record, and markers of transactions after it
_LOOK_FACTOR = 16
_SILENCE_SECONDS = 30.0


def last_times(
    config: ClientConfig, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the timestamp of the last committed record of each partition, in milliseconds.

    Partitions without one are left out. Markers of transactions are no records, so more and more
    of the end is read until one is there.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer for 30 s.
    """
    ends = {partition: end for partition, (end, _) in latest_offsets(config, partitions).items()}
    firsts = earliest_offsets(config, ends)
    times: dict[TopicPartition, int] = {}
    look, begins = _FIRST_LOOK_OFFSETS, ends
    while begins := {
        partition: max(firsts[partition], ends[partition] - look)
        for partition, begin in begins.items()
        if partition not in times and begin > firsts[partition]
    }:
        ranges = [OffsetRange(partition, at, ends[partition]) for partition, at in begins.items()]
        reader = consumer(config)
        try:
            for chunk in read_ranges(
                reader, ranges, config, silence_limit_seconds=_SILENCE_SECONDS
            ):
                if chunk.records:
                    times[chunk.partition] = chunk.records[-1].timestamp()[1]
        finally:
            reader.close()
        look *= _LOOK_FACTOR
    return times
