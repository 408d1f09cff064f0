"""Who matches events with standing queries, and what each of them needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from bench import headrace_match
from bench.cluster import Broker
from bench.driver import Open
from bench.peers import flink_match, opensearch, percolator
from bench.peers.contest import PARTITIONS
from bench.peers.match_topics import matches_of, rules_topic
from bench.query_traffic import TTL
from headrace import StandingQueries
from headrace.kafka.client.clients import client_config
from headrace.runtime.java.installation import Java
from headrace.settings.model import KafkaSettings

OURS, FLINK, FLINK_INDEXED, OPENSEARCH = "headrace", "flink", "flink-indexed", "opensearch"
COMPARED = ("match-100", "match-1000", "match-10000")
"""The benchmarks that rivals take part in."""
Matches = Callable[[], Counter[str]]
"""How many events matched each query in a run that has ended, by its id."""


@dataclass(frozen=True)
class System:
    """One way to match events with queries.

    Attributes:
        prepare: fetches what it needs for a benchmark; what it gives starts the system. Raises
            PeerMissingError or JarError where something can't be had.
        matches: is called before a run, with the broker, the benchmark and the name of the run.
        guarantee: of delivery.
        settings: what is not its default.
    """

    prepare: Callable[[str, Java], Open]
    matches: Callable[[Broker, str, str], Matches]
    guarantee: str
    settings: Mapping[str, object] = field(default_factory=dict)


def standing_queries(benchmark: str) -> StandingQueries:
    """As a project would declare them."""
    return StandingQueries(benchmark, partitions=PARTITIONS, max_ttl=TTL)


def _headrace(benchmark: str, _: Java) -> Open:
    return partial(headrace_match.open_match, queries=standing_queries(benchmark))


def _headrace_matches(broker: Broker, benchmark: str, _: str) -> Matches:
    config = client_config(KafkaSettings(), broker.bootstrap)
    queries = standing_queries(benchmark)
    begins = headrace_match.ends(config, queries)
    return partial(headrace_match.matches_since, config, queries, begins)


def _flink(benchmark: str, java: Java, *, is_indexed: bool) -> Open:
    return partial(
        flink_match.open_flink_match,
        program=flink_match.prepare(java),
        rules=rules_topic(benchmark).name,
        is_indexed=is_indexed,
    )


def _opensearch(benchmark: str, java: Java) -> Open:
    program, rules = opensearch.prepare(java), rules_topic(benchmark).name
    return partial(percolator.open_percolator, program=program, rules=rules)


def _rival_matches(broker: Broker, _: str, run: str) -> Matches:
    return partial(matches_of, broker, run, PARTITIONS)


SYSTEMS = {
    OURS: System(_headrace, _headrace_matches, "exactly once"),
    **{
        name: System(
            partial(_flink, is_indexed=is_indexed),
            _rival_matches,
            "at least once",
            flink_match.SETTINGS | flink_match.CONSUMER | {"jvm": " ".join(flink_match.OPTIONS)},
        )
        for name, is_indexed in ((FLINK, False), (FLINK_INDEXED, True))
    },
    OPENSEARCH: System(
        _opensearch,
        _rival_matches,
        "at least once",
        percolator.SETTINGS
        | {"documents": percolator.DOCUMENTS, "jvm": " ".join(opensearch.OPTIONS)},
    ),
}


def systems_of(benchmark: str) -> list[str]:
    """Who takes part in a benchmark."""
    return [name for name in SYSTEMS if name == OURS or benchmark in COMPARED]
