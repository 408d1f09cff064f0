"""The epochs that are committed with positions of a running query, as KIP-320 has it."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.kafka.client.client import ClientConfig
from headrace.kafka.read.log_cuts import Seen, whole_ends
from headrace.links.instance import SourceChangedError
from headrace.model import TopicPartition


def source_epochs(
    config: ClientConfig, seen: Mapping[TopicPartition, Seen]
) -> dict[TopicPartition, int]:
    """Returns the epochs of the leaders of partitions that a query reads.

    Ask behind the progress of the query. What it has read of a log is in that of the leader: where
    another one leads, Spark's reader has compared it.

    Args:
        config: of the source's cluster.
        seen: the positions that are committed.

    Raises:
        SourceChangedError: if a log was truncated before a position.
        AuthorizationError: if reading a topic is not allowed.
        BrokerUnreachableError: if the brokers do not answer.
    """
    ends = whole_ends(config, seen)
    for partition in sorted(seen.keys() - ends.keys()):
        raise SourceChangedError(f"the log of {partition.path} was truncated")
    return {partition: end.epoch for partition, end in ends.items()}
