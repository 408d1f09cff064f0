"""The consumer group of a pipeline: where Kafka's tools see its progress."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from confluent_kafka import KafkaException

from headrace.errors import HeadraceError
from headrace.kafka.client import ClientConfig, commit_offsets
from headrace.model import TopicPartition

_LOG = logging.getLogger("headrace.pipelines")
_COMPLAIN_SECONDS = 60.0


class GroupOffsets:
    """Commits positions for the group. Nothing rests on them, so a failure is only told."""

    def __init__(self, client: ClientConfig, group: str) -> None:
        self._client = client
        self._group = group
        self._complained = -_COMPLAIN_SECONDS

    def show(
        self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
    ) -> None:
        """Commits ``positions``; warns, once a minute at most, when the cluster does not take them.

        It may be away, the group may need an ACL, or others may subscribe with this group.

        Args:
            positions: the next record to read.
            epochs: of the leaders that told them.
        """
        try:
            commit_offsets(self._client, self._group, positions, epochs)
        except (HeadraceError, KafkaException) as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._complained < _COMPLAIN_SECONDS:
            return
        self._complained = now
        _LOG.warning(
            "Cannot commit offsets (operation READ on group %s): Kafka's tools show its lag too "
            "high. The batch is in the table, and the next one tries again: %s",
            *(self._group, error),
        )
