"""Checks declared standing queries before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from headrace.model import Topic
from headrace.model.fault import Fault, at_least, is_a
from headrace.model.name import NAME, NAME_WORDS
from headrace.pipelines.declaration import Pipeline
from headrace.project.kind import Declaration, DeclarationFault, Declarations, declared
from headrace.queries.declaration import StandingQueries

MIN_TTL, MAX_TTL = timedelta(seconds=1), timedelta(days=30)
MATCH_SINK = "queries"
"""The kind of the sink that matches rows with queries; its ``queries`` are the StandingQueries."""
MAX_PARTITIONS = 64


def standing_query_faults(queries: StandingQueries) -> Iterator[Fault]:
    """Yields the faults of one declaration of standing queries by itself."""
    if not NAME.fullmatch(queries.name):
        yield _name_fault(queries)
    yield from at_least(queries, "partitions", 1)
    if is_a(queries.partitions, int) and queries.partitions > MAX_PARTITIONS:
        message = f"standing queries {queries.name!r}: partitions is {queries.partitions}"
        yield Fault(message, f"at most {MAX_PARTITIONS}: each reports its event time to all others")
    if queries.partitions_per_instance is not None:
        yield from at_least(queries, "partitions_per_instance", 1)
    ttl = queries.max_ttl
    if ttl is not None and not (is_a(ttl, timedelta) and MIN_TTL <= ttl <= MAX_TTL):
        message = f"standing queries {queries.name!r}: max_ttl is {ttl!r}"
        days = MAX_TTL.days
        yield Fault(message, f"a timedelta from 1 second to {days} days; or None, without a limit")


def query_type_faults(queries: StandingQueries) -> Iterator[Fault]:
    """Yields which parts of a declaration of standing queries are not what the model says."""
    if not is_a(queries.name, str):
        yield _name_fault(queries)


def _name_fault(queries: StandingQueries) -> Fault:
    message = f"{queries.name!r} is not a name of standing queries"
    return Fault(message, f"{NAME_WORDS}: it names topics")


def faults_with_queries(declarations: Declarations) -> Iterator[DeclarationFault]:
    """Yields what is wrong between standing queries, topics and the pipelines that match events."""
    yield from _colliding_topics(declarations)
    yield from _undeclared_queries(declarations)
    yield from _matched_twice(declarations)


def _colliding_topics(declarations: Declarations) -> Iterator[DeclarationFault]:
    """Topics of standing queries are theirs alone, and are not declared beside them."""
    first: dict[str, Declaration[Any]] = {
        topic.value.name.replace(".", "_"): topic for topic in declared(declarations, Topic)
    }
    for declaration in declared(declarations, StandingQueries):
        for name in declaration.value.topics:
            earlier = first.setdefault(name.replace(".", "_"), declaration)
            if earlier.kind is not declaration.kind or earlier.value.name != declaration.value.name:
                message = f"topic {name!r} of {declaration} collides with {earlier}"
                yield declaration, Fault(message, f"at {earlier.place}")


def _undeclared_queries(declarations: Declarations) -> Iterator[DeclarationFault]:
    known = [declaration.value for declaration in declared(declarations, StandingQueries)]
    for declaration in declared(declarations, Pipeline):
        for matched in queries_matched_by(declaration.value):
            if matched not in known:
                message = f"{declaration} matches {matched.name!r}, which is not declared"
                remedy = "assign the StandingQueries to a name in a module"
                yield declaration, Fault(message, remedy)


def _matched_twice(declarations: Declarations) -> Iterator[DeclarationFault]:
    """Events of a topic that two pipelines match with the same queries would count twice."""
    first: dict[tuple[str, str], Declaration[Pipeline]] = {}
    for declaration in declared(declarations, Pipeline):
        for queries in queries_matched_by(declaration.value):
            for source in declaration.value.sources:
                place = queries.name, source.topic.name
                earlier = first.setdefault(place, declaration)
                if earlier is not declaration:
                    message = (
                        f"{declaration} matches {source.topic.name!r} with {queries.name!r}, as "
                        f"{earlier.value.name!r} does: events would count twice"
                    )
                    yield declaration, Fault(message, f"see {earlier.place}")


def queries_matched_by(pipeline: Pipeline) -> list[StandingQueries]:
    """Returns the standing queries that a pipeline matches events with."""
    sinks = (sink for sink in pipeline.sinks if sink.kind == MATCH_SINK)
    queries = (getattr(sink, "queries", None) for sink in sinks)
    return [declared for declared in queries if isinstance(declared, StandingQueries)]
