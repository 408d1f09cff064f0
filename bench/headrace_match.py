"""headrace's match stage, as a project would use it, and what it writes."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

from bench.driver import WriteOnce
from bench.headrace_writer import batch_limits, open_pipelines
from bench.query_traffic import ad_impressions_topic
from bench.setup import Setup
from headrace import Pipeline, StandingQueries
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig, consumer
from headrace.kafka.client.offsets import high_watermarks
from headrace.kafka.read.range_reader import read_ranges
from headrace.model import OffsetRange, TopicPartition
from headrace.queries.match.sink import MatchQueries
from headrace.queries.records.matched import WindowPartial, decode_matched

Offsets = dict[TopicPartition, int]


def open_match(setup: Setup, *, queries: StandingQueries) -> WriteOnce:
    """Starts Spark; the function returned matches the whole topic with the registered queries.

    Queries are read again in each run: its pipeline has the name of the run.
    """
    return open_pipelines(setup, "match", partial(_pipeline, setup, queries=queries))


def _pipeline(setup: Setup, out: Path, *, queries: StandingQueries) -> Pipeline:
    topic = ad_impressions_topic(setup.topic, setup.partitions)
    return Pipeline(out.name, topic, MatchQueries(queries), limits=batch_limits(setup))


def ends(config: ClientConfig, queries: StandingQueries) -> Offsets:
    """The ends of the matched topic, by partition."""
    topic = queries.matched_topic
    return high_watermarks(config, describe(config, [topic])[topic].all_partitions)


def matches_since(config: ClientConfig, queries: StandingQueries, begins: Offsets) -> Counter[str]:
    """How many matches of each query were committed since the matched topic ended at ``begins``.

    Windows of the queries do not overlap, so an event of a window is a match.
    """
    ranges = [
        OffsetRange(partition, begins[partition], end)
        for partition, end in ends(config, queries).items()
        if begins[partition] < end
    ]
    reader = consumer(config)
    try:
        decoded = (
            decode_matched(record.value() or b"")
            for chunk in read_ranges(reader, ranges, config)
            for record in chunk.records
        )
        matches: Counter[str] = Counter()
        for record in decoded:
            if isinstance(record, WindowPartial):
                matches[record.query] += record.events
        return matches
    finally:
        reader.close()
