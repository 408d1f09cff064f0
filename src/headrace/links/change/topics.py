"""The topics of a change, as they are in Kafka."""

from __future__ import annotations

from headrace.errors import TopicMissingError
from headrace.kafka.client.admin_requests import LiveTopic, describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import watermarks
from headrace.model import OffsetRange


def live_topic(config: ClientConfig, topic: str) -> LiveTopic:
    """Returns a topic as it is.

    Raises:
        TopicMissingError: if there is no such topic.
        BrokerUnreachableError: if the brokers do not answer.
    """
    live = describe(config, [topic]).get(topic)
    if live is None:
        raise TopicMissingError(topic)
    return live


def ranges_of(config: ClientConfig, topic: str) -> list[OffsetRange]:
    """Returns the offsets that each partition of a topic has. Raises as :func:`live_topic`."""
    marks = watermarks(config, live_topic(config, topic).all_partitions)
    return [OffsetRange(at, start, end) for at, (start, end) in sorted(marks.items())]
