"""OpenSearch's percolator: rules are queries of an index, and events are percolated many at a time.

A client reads the events of each partition, has them percolated as they are, and sends a record for
each match before it commits the offset. It parses only events that match.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import confluent_kafka
import msgspec

from bench.driver import OnCommit, WriteOnce
from bench.match_rules import Condition, Rule
from bench.peers.java_program import Program
from bench.peers.match_topics import (
    WARM_UP_SHARE,
    Match,
    config_of,
    make_matches_topic,
    rules_in,
)
from bench.peers.opensearch import Client, Node
from bench.peers.progress import follow_group
from bench.setup import Setup
from headrace.kafka.client.clients import consumer, producer

INDEX = "rules"
DOCUMENTS = 10_000
"""Events of a request."""
SETTINGS = {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "-1"}
# Fields without an index select no candidates: the advertiser alone does, which few events have.
_TEXT = {"type": "keyword", "doc_values": False}
_WHOLE = {"type": "long", "index": False}
FIELDS = {
    "query": {"type": "percolator"},
    "advertiser": _TEXT,
    "campaign": _TEXT,
    "event_time": _WHOLE,
    "item_id": _WHOLE,
    "position": _WHOLE,
    "propensity": {"type": "double", "index": False},
}
"""Those that rules have conditions on; the others are not looked at."""
_MOST_HITS = 10_000
_SLOTS = "_percolator_document_slot"
_RULES_A_REQUEST = 1_000
_SECONDS = 1.0
_READING = {"enable.partition.eof": "false", "fetch.queue.backoff.ms": "10"}
_RANGES = {">=": "gte", ">": "gt", "<=": "lte", "<": "lt"}


def open_percolator(setup: Setup, *, program: Program, rules: str) -> WriteOnce:
    """Starts a node and registers the rules of a topic; the function returned matches the topic."""
    node = Node(program, setup.logs / "opensearch", setup.heap_mb)
    register(node.client(), rules_in(setup, rules))

    def match(messages: int, run: str, on_commit: OnCommit) -> None:
        part = replace(setup, messages=messages)
        reading = Percolation(node, part, run, make_matches_topic(setup, run))
        with ThreadPoolExecutor(setup.partitions) as threads:
            ended = [
                threads.submit(reading.match_partition, number)
                for number in range(setup.partitions)
            ]

            def check() -> None:
                node.check()
                for partition in ended:
                    if partition.done():
                        partition.result()

            follow_group(part, run, on_commit, check)

    match(setup.messages // WARM_UP_SHARE, f"{setup.logs.name}-opensearch-warm-up", lambda _: None)
    return lambda out, on_commit: match(setup.messages, out.name, on_commit)


def register(client: Client, rules: Iterable[Rule]) -> None:
    """Makes the index, with a query for each rule."""
    index = {"settings": SETTINGS, "mappings": {"dynamic": False, "properties": FIELDS}}
    client.call("PUT", f"/{INDEX}", json.dumps(index).encode())
    lines = (
        json.dumps(line).encode()
        for rule in rules
        for line in ({"index": {"_id": rule.id}}, {"query": query_of(rule)})
    )
    for some in _chunks(lines, 2 * _RULES_A_REQUEST):
        if client.call("POST", f"/{INDEX}/_bulk", b"\n".join((*some, b"")))["errors"]:
            raise RuntimeError("OpenSearch has refused rules")
    client.call("POST", f"/{INDEX}/_refresh")
    client.call("POST", f"/{INDEX}/_forcemerge?max_num_segments=1")


def query_of(rule: Rule) -> dict[str, Any]:
    """The rule as a query of OpenSearch that computes no score."""
    excluded = [condition for condition in rule.conditions if condition.operator == "!="]
    met = [condition for condition in rule.conditions if condition.operator != "!="]
    return {
        "bool": {
            "filter": [_clause(condition) for condition in met],
            "must_not": [_clause(condition) for condition in excluded],
        }
    }


def _clause(condition: Condition) -> dict[str, Any]:
    if condition.operator in _RANGES:
        return {"range": {condition.field: {_RANGES[condition.operator]: condition.values[0]}}}
    return {"terms": {condition.field: condition.values}}


def percolated(client: Client, events: Sequence[bytes]) -> Iterator[Match]:
    """The matches of events.

    Raises:
        RuntimeError: if more rules match than a request can return.
    """
    documents = b",".join(events)
    request = (
        b'{"size":%d,"track_total_hits":true,"_source":false,"sort":["_doc"],"query":{'
        b'"constant_score":{"filter":{"percolate":{"field":"query","documents":[%s]}}}}}'
    )
    path = f"/{INDEX}/_search?filter_path=hits.total.value,hits.hits._id,hits.hits.fields"
    hits = client.call("POST", path, request % (_MOST_HITS, documents))["hits"]
    matching = hits.get("hits", ())
    if hits["total"]["value"] != len(matching):
        raise RuntimeError(f"{hits['total']['value']} rules match, {len(matching)} were returned")
    for hit in matching:
        for slot in hit["fields"][_SLOTS]:
            event = json.loads(events[slot])
            yield Match(hit["_id"], event["event_id"], event["event_time"])


@dataclass(frozen=True)
class Percolation:
    """A run over the first messages of the topic, each partition on one thread."""

    node: Node
    setup: Setup
    run: str
    matches: str

    def match_partition(self, partition: int) -> None:
        """Matches its share of the messages."""
        config, client = config_of(self.setup), self.node.client()
        reader, writer = consumer(config, self.run, _READING), producer(config)
        reader.assign([confluent_kafka.TopicPartition(self.setup.topic, partition, 0)])
        left = self.setup.messages // self.setup.partitions
        while left:
            records = reader.consume(min(left, DOCUMENTS), _SECONDS)
            events = [record.value() for record in records if record.error() is None]
            if not events:
                continue
            for match in percolated(client, events):
                writer.produce(self.matches, msgspec.json.encode(match))
            writer.flush()
            reader.commit(message=records[-1], asynchronous=False)
            left -= len(events)
        reader.close()


def _chunks(lines: Iterable[bytes], count: int) -> Iterator[list[bytes]]:
    remaining = iter(lines)
    while some := list(itertools.islice(remaining, count)):
        yield some
