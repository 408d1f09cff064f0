"""Topics of the rivals of a match stage: rules that they match, and a record for each match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from bench.cluster import Broker, records_in, values_of
from bench.match_rules import Rule, decode_rule
from bench.setup import Setup
from headrace import Topic
from headrace.kafka.admin.topics import apply_changes, plan_topics
from headrace.kafka.client.clients import ClientConfig, client_config
from headrace.settings.model import KafkaSettings

WARM_UP_SHARE = 10
"""A rival's JVM has matched the first tenth of the topic before a run of it is measured."""


class Match(msgspec.Struct, frozen=True):
    """An event that a query matches: all that the rivals write of it.

    Attributes:
        query: its id.
        event_id: of the event.
        event_time: of the event, in milliseconds since 1970.
    """

    query: str
    event_id: str
    event_time: int


def rules_topic(benchmark: str) -> Topic:
    """Of the rules of a benchmark."""
    return Topic(f"{benchmark}-rules", partitions=1)


def rules_in(setup: Setup, topic: str) -> Iterator[Rule]:
    """The rules of a topic."""
    return map(decode_rule, values_of(_broker(setup), topic, 1))


def count_of_rules(setup: Setup, topic: str) -> int:
    """How many rules a topic has."""
    return records_in(_broker(setup), topic, 1)


def make_matches_topic(setup: Setup, run: str) -> str:
    """Makes the topic that a run writes its matches to; returns its name."""
    topic = Topic(_matches_topic(run), partitions=setup.partitions)
    apply_changes(config_of(setup), plan_topics([topic], {}))
    return topic.name


def matches_of(broker: Broker, run: str, partitions: int) -> Counter[str]:
    """How many events matched each query in a run, by its id."""
    decoder = msgspec.json.Decoder(Match)
    values = values_of(broker, _matches_topic(run), partitions)
    return Counter(decoder.decode(value).query for value in values)


def config_of(setup: Setup) -> ClientConfig:
    """What a client is told of the broker."""
    return client_config(KafkaSettings(), setup.bootstrap)


def _matches_topic(run: str) -> str:
    return f"{run}-matches"


def _broker(setup: Setup) -> Broker:
    return Broker(setup.bootstrap, pid=0)
