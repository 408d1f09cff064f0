"""Positions of pipelines in a topic, written in the transactions of their records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.table.topic_table import read_table
from headrace.kafka.write.record import ProducerRecord
from headrace.sinks.api import PositionStore, RestoredTarget


class TopicPositions(PositionStore):
    """What a compacted topic of one partition records: the key is an application id.

    Args:
        client: librdkafka's settings of the cluster.
        topic: its name; a topic that does not exist records nothing.
    """

    def __init__(self, client: ClientConfig, topic: str) -> None:
        self._client, self._topic = client, topic

    @property
    def uri(self) -> str:
        """See :class:`PositionStore`."""
        return f"topic {self._topic}"

    def versions(self, app_ids: Iterable[str]) -> Mapping[str, int]:
        """See :class:`PositionStore`; waits for open transactions, which may have recorded some."""
        recorded = read_table(self._client, self._topic, settled=True)
        keys = {name: name.encode() for name in app_ids}
        return {name: int(recorded[key]) for name, key in keys.items() if key in recorded}

    def restored(self, writer: Mapping[str, object]) -> RestoredTarget | None:  # noqa: ARG002
        """Returns ``None``: positions and records in topics do not go back in time."""
        return None

    def records(self, versions: Mapping[str, int]) -> Iterator[ProducerRecord]:
        """Yields the records that record numbers, by application id."""
        for name, version in versions.items():
            yield ProducerRecord(self._topic, name.encode(), str(version).encode(), (), 0)
