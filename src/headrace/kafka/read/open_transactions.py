"""Partitions in which a transaction is open: readers of committed records wait there."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import high_watermarks, latest_offsets
from headrace.model import TopicPartition

OPEN_TRANSACTION_SECONDS = 90.0
"""Longer than brokers leave the transaction of a crashed producer open: a minute, and seconds."""


def open_transactions(
    config: ClientConfig, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the last stable offsets of those partitions that have records after it.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
        TopicMissingError: if a topic does not exist.
    """
    # In this order: a transaction that ends in between is not open.
    ends = high_watermarks(config, partitions)
    stable = {
        partition: offset for partition, (offset, _) in latest_offsets(config, partitions).items()
    }
    return {partition: offset for partition, offset in stable.items() if offset < ends[partition]}


class HangingTransactions:
    """Looks for transactions that stay open. Used on one thread.

    Args:
        config: librdkafka's settings of the cluster.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._seen: Mapping[TopicPartition, int] = {}

    def find(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the last stable offsets of partitions that have stood still since the last call.

        Calls must be further apart than a transaction may take. A partition without an open
        transaction does not stand still.

        Raises:
            AuthorizationError: if an ACL is missing.
            BrokerUnreachableError: if the brokers do not answer.
            TopicMissingError: if a topic does not exist.
        """
        is_open = open_transactions(self._config, partitions)
        before, self._seen = self._seen, is_open
        return {
            partition: offset
            for partition, offset in is_open.items()
            if before.get(partition) == offset
        }
