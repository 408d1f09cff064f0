"""The brokers of a cluster, and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from headrace.kafka.client.admin_requests import READ_ATTEMPT_SECONDS, admin_request
from headrace.kafka.client.broker_errors import is_forbidden
from headrace.kafka.client.clients import ClientConfig


@dataclass(frozen=True)
class Brokers:
    """A cluster's brokers.

    Attributes:
        count: how many are there now.
        config: settings in force on the one with the lowest id, by Kafka's names; empty when
            this client may not see them.
        racks: the rack (``broker.rack``) of each broker that has one, by the broker's id.
    """

    count: int
    config: Mapping[str, str]
    racks: Mapping[int, str] = field(default_factory=dict)


def describe_brokers(config: ClientConfig) -> Brokers:
    """The brokers that answer now.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    racks = admin_request(config, _racks)
    try:
        settings = admin_request(config, lambda client: _settings(client, min(racks)))
    except KafkaException as error:
        if not is_forbidden(error.args[0]):
            raise
        settings = {}
    return Brokers(
        len(racks), settings, {broker: rack for broker, rack in racks.items() if rack is not None}
    )


def cluster_id(config: ClientConfig) -> str:
    """Returns the id of a cluster, which is another one of each; no ACL is needed.

    Raises:
        AuthenticationError: if the login is refused.
        BrokerUnreachableError: if the brokers do not answer.
    """

    def described(client: AdminClient) -> str:
        cluster = client.describe_cluster(request_timeout=READ_ATTEMPT_SECONDS).result()
        return cluster.cluster_id or ""

    return admin_request(config, described)


def _racks(client: AdminClient) -> dict[int, str | None]:
    """Returns the rack of each broker that is up, by the broker's id."""
    cluster = client.describe_cluster(request_timeout=READ_ATTEMPT_SECONDS).result()
    return {node.id: node.rack for node in cluster.nodes}


def _settings(client: AdminClient, broker: int) -> dict[str, str]:
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    futures = client.describe_configs([resource], request_timeout=READ_ATTEMPT_SECONDS)
    entries = futures[resource].result()
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}
