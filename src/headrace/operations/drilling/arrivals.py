"""Which events are in which topics, by the ids in their records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.read.range_reader import read_records
from headrace.model import OffsetRange
from headrace.operations.drilling.events import EventName, names_in

Arrivals: TypeAlias = Mapping[str, Counter[EventName]]
"""By topic, how many of its records have the id of an event."""

_GROUP = "headrace.drill"


def find_arrivals(config: ClientConfig, topics: Iterable[str]) -> dict[str, Counter[EventName]]:
    """Reads all committed records of topics; those that do not exist have none.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    return {name: _in_topic(config, name) for name in sorted(describe(config, topics))}


def _in_topic(config: ClientConfig, topic: str) -> Counter[EventName]:
    counts: Counter[EventName] = Counter()
    bounds = watermarks(config, describe(config, [topic])[topic].all_partitions)
    ranges = [OffsetRange(partition, first, end) for partition, (first, end) in bounds.items()]
    for record in read_records(config, _GROUP, ranges):
        headers = (content for _, content in record.headers() or ())
        counts.update(names_in(record.value(), record.key(), *headers))
    return counts
