"""Checks declared standing queries before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from headrace.model.fault import Fault, at_least, is_a
from headrace.model.name import NAME, NAME_WORDS
from headrace.pipelines.declaration import Pipeline
from headrace.queries.declaration import StandingQueries

MIN_TTL, MAX_TTL = timedelta(seconds=1), timedelta(days=30)
MATCH_SINK = "queries"
"""The kind of the sink that matches rows with queries; its ``queries`` are the StandingQueries."""
MAX_PARTITIONS = 64


def standing_query_faults(queries: StandingQueries) -> Iterator[Fault]:
    """Yields the faults of one declaration of standing queries by itself."""
    if not is_a(queries.name, str) or not NAME.fullmatch(queries.name):
        message = f"{queries.name!r} is not a name of standing queries"
        yield Fault(message, f"{NAME_WORDS}: it names topics")
    yield from at_least(queries, "partitions", 1)
    if is_a(queries.partitions, int) and queries.partitions > MAX_PARTITIONS:
        message = f"standing queries {queries.name!r}: partitions is {queries.partitions}"
        yield Fault(message, f"at most {MAX_PARTITIONS}: each tells all others how far it is")
    if queries.partitions_per_instance is not None:
        yield from at_least(queries, "partitions_per_instance", 1)
    ttl = queries.max_ttl
    if ttl is not None and not (is_a(ttl, timedelta) and MIN_TTL <= ttl <= MAX_TTL):
        message = f"standing queries {queries.name!r}: max_ttl is {ttl!r}"
        days = MAX_TTL.days
        yield Fault(message, f"a timedelta from 1 second to {days} days; or None, without a limit")


def queries_matched_by(pipeline: Pipeline) -> list[StandingQueries]:
    """Returns the standing queries that a pipeline matches events with."""
    sinks = (sink for sink in pipeline.sinks if sink.kind == MATCH_SINK)
    queries = (getattr(sink, "queries", None) for sink in sinks)
    return [declared for declared in queries if isinstance(declared, StandingQueries)]
