"""The brokers of a cluster, and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from headrace.kafka.client.admin_requests import READ_ATTEMPT_SECONDS, admin_request, broker_ids
from headrace.kafka.client.broker_errors import is_forbidden
from headrace.kafka.client.clients import ClientConfig


@dataclass(frozen=True)
class Brokers:
    """A cluster's brokers.

    Attributes:
        count: how many are there now.
        config: settings in force on the one with the lowest id, by Kafka's names; empty when
            this client may not see them.
    """

    count: int
    config: Mapping[str, str]


def describe_brokers(config: ClientConfig) -> Brokers:
    """The brokers that answer now.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    ids = admin_request(config, broker_ids)
    try:
        return Brokers(len(ids), admin_request(config, lambda client: _settings(client, min(ids))))
    except KafkaException as error:
        if not is_forbidden(error.args[0]):
            raise
        return Brokers(len(ids), {})


def _settings(client: AdminClient, broker: int) -> dict[str, str]:
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    futures = client.describe_configs([resource], request_timeout=READ_ATTEMPT_SECONDS)
    entries = futures[resource].result()
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}
