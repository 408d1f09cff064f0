"""The consumer group of a pipeline: where Kafka's tools see its progress."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from confluent_kafka import KafkaException

from headrace.errors import HeadraceError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import commit_offsets
from headrace.model import TopicPartition

_LOG = logging.getLogger("headrace.pipelines")
# Batches may come ten times a second, and the cause (an ACL, another subscriber) lasts until an
# operator acts: a line a minute shows that it lasts, and keeps the log readable.
_WARN_INTERVAL_SECONDS = 60.0


class GroupOffsets:
    """Commits positions for the group. No start depends on them, so a failure is only logged."""

    def __init__(self, client: ClientConfig, group: str) -> None:
        self._client = client
        self._group = group
        self._warned_at = -_WARN_INTERVAL_SECONDS

    def show(
        self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
    ) -> None:
        """Commits ``positions``; warns, once a minute at most, when the cluster does not take them.

        It may be unreachable, the group may need an ACL, or others may subscribe with this group.

        Args:
            positions: the next record to read.
            epochs: of the leaders that reported them.
        """
        try:
            commit_offsets(self._client, self._group, positions, epochs)
        # The table records the positions. Failing here would stop a batch that is committed.
        except (HeadraceError, KafkaException) as error:
            self._warn_throttled(error)

    def _warn_throttled(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._warned_at < _WARN_INTERVAL_SECONDS:
            return
        self._warned_at = now
        _LOG.warning(
            "Cannot commit offsets (operation READ on group %s): Kafka's tools show its lag too "
            "high. The batch is in the table, and the next one tries again: %s",
            *(self._group, error),
        )
