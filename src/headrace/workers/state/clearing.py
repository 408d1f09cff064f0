"""Deletes the state of partitions, of a worker that no instance runs."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.table.changelog import write_changelog
from headrace.model import TopicPartition
from headrace.workers.state.changelog import POSITION, read_state


def clear_state(config: ClientConfig, topic: str, numbers: Iterable[int]) -> None:
    """Deletes the state of partitions of ``topic``; what does not exist has none.

    The position goes first: an instance refuses what a crash leaves between.

    Raises:
        BrokerUnreachableError: if brokers do not answer, or a transaction stays open.
        AuthorizationError: if an ACL is missing.
    """
    live = describe(config, [topic]).get(topic)
    for number in numbers:
        if live is None or number >= live.partitions:
            continue
        stored = read_state(config, TopicPartition(topic, number))
        write_changelog(config, topic, {POSITION: None}, partition=number)
        write_changelog(config, topic, dict.fromkeys(stored.keys), partition=number)
