"""Reads the results of a standing query, each group of a window once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from headrace.errors import QueryMissingError, TopicMissingError
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.read.range_reader import read_records
from headrace.kafka.read.tail import follow
from headrace.model import OffsetRange, TopicPartition
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config
from headrace.queries.declaration import StandingQueries
from headrace.queries.records.result import QueryResult, ResultKind, result_of
from headrace.queries.registry.record import QUERY_ID
from headrace.queries.registry.registrations import QueryRegistry, declared_queries

MAX_LISTED_RESULTS = 100_000

ResultStart: TypeAlias = Literal["earliest", "latest"]
"""Start at the first result that Kafka still has, or read only results from now on."""

WindowKey: TypeAlias = tuple[str, int, str, bool]
"""The query's registration time and revision, the window's start, and whether it is a loss."""

GroupKey: TypeAlias = tuple[WindowKey, bytes, bool]
"""The window, the facets as JSON, and whether the group holds the events beyond LIMIT."""


@dataclass(frozen=True)
class ResultOptions:
    """Options of reading results.

    Attributes:
        follow: whether to wait for new results until the caller stops.
        start: start of the results; without ``follow``, always the earliest result.
        limit: greatest number of results: the newest or, with ``follow``, the first. ``None`` means
            100,000 or, with ``follow``, no limit.
    """

    follow: bool = False
    start: ResultStart = "earliest"
    limit: int | None = None


@dataclass(frozen=True)
class QueryResults:
    """The results of a query.

    Attributes:
        results: results, read as the caller iterates.
        ended: why there will be no further results, as a sentence; empty if there may be some.
    """

    results: Iterator[QueryResult]
    ended: str = ""


def find_results(
    project: LoadedProject,
    query_id: str,
    options: ResultOptions | None = None,
    *,
    queries: str | None = None,
) -> QueryResults:
    """Returns the results of a query, without joining a consumer group or committing offsets.

    =============== ============================================================================
    without follow  the newest result of each group, sorted by the ends of windows, newest last
    with follow     each result once, as it is written; a result with a greater ``emission``
                    replaces earlier results of its window
    =============== ============================================================================

    Results of an expired or cancelled query can be read until Kafka deletes them.

    Raises:
        QueryMissingError: if the id is unknown and has no results.
        NotDeclaredError: if there are no such standing queries.
        TopicMissingError: if there is no results topic to follow.
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
        RecordsUnreadableError: if records are damaged.
    """
    chosen = options or ResultOptions()
    declared = declared_queries(project, queries)
    registry = QueryRegistry(project, queries)
    missing, ended = _missing(registry, query_id), registry.ended(query_id)
    config, is_id = broker_config(project.settings), QUERY_ID.fullmatch(query_id)
    partition = results_partition(config, declared, query_id) if is_id else None
    if partition is None:
        if missing is not None:
            raise missing
        if chosen.follow:
            raise TopicMissingError(declared.results_topic)
        return QueryResults(iter(()), ended)
    begin, end = watermarks(config, [partition])[partition]
    known = _between(config, OffsetRange(partition, begin, end), query_id)
    # The registry forgets cancelled and expired queries earlier than Kafka deletes their results.
    if missing is not None:
        first = next(known, None)
        if first is None:
            raise missing
        known = itertools.chain([first], known)
    if chosen.follow:
        before = known if chosen.start == "earliest" else ()
        coming = itertools.chain(before, _followed(config, partition, end, query_id))
        return QueryResults(itertools.islice(unrepeated(coming), chosen.limit), ended)
    return QueryResults(iter(newest_results(known, chosen.limit or MAX_LISTED_RESULTS)), ended)


def results_partition(
    config: ClientConfig, queries: StandingQueries, query_id: str
) -> TopicPartition | None:
    """Returns the partition that has the results of a query; ``None`` if it does not exist."""
    topic = queries.results_topic
    place = TopicPartition(topic, queries.partition_of(query_id.encode()))
    live = describe(config, [topic]).get(topic)
    return place if live is not None and place in live.all_partitions else None


def newest_results(
    results: Iterable[QueryResult], limit: int = MAX_LISTED_RESULTS, min_at_once: int = 20_000
) -> list[QueryResult]:
    """Returns the newest valid results, sorted by the ends of their windows, newest last.

    Only results with the greatest ``emission`` of their window are valid, as a group may have moved
    into the group of events beyond LIMIT since. Results of one window keep their order.

    Memory is bounded: at most four times as many results as the limit, or twice ``min_at_once``,
    are kept.

    Args:
        results: results in the order of their topic.
        limit: the greatest number of results to return.
        min_at_once: the least number of results to process at once: several windows even at the
            largest LIMIT.
    """
    at_once = max(2 * limit, min_at_once)
    coming = iter(results)
    newest: list[QueryResult] = []
    while part := list(itertools.islice(coming, at_once)):
        newest = _counting([*newest, *part])[-at_once:]
    return newest[-limit:]


def _counting(results: Iterable[QueryResult]) -> list[QueryResult]:
    emissions: dict[WindowKey, int] = {}
    newest: dict[GroupKey, QueryResult] = {}
    for result in unrepeated(results):
        window = window_key(result)
        emissions[window] = max(result.emission, emissions.get(window, 0))
        newest[_group_key(result)] = result
    counting = (
        result for result in newest.values() if result.emission == emissions[window_key(result)]
    )
    # Windows begin and end at whole seconds, so their ends sort as texts in the order of time.
    return sorted(counting, key=lambda result: result.end)


def unrepeated(results: Iterable[QueryResult], max_groups: int = 100_000) -> Iterator[QueryResult]:
    """Yields results with a greater emission than all earlier results of their group.

    Args:
        results: results in the order of their topic.
        max_groups: groups whose newest emission is kept in memory; those updated longest ago are
            dropped first.
    """
    emissions: dict[GroupKey, int] = {}
    for result in results:
        group = _group_key(result)
        newest = emissions.pop(group, -1)
        # Reinserted at the end: the group that was updated longest ago is dropped first.
        emissions[group] = max(result.emission, newest)
        if len(emissions) > max_groups:
            del emissions[next(iter(emissions))]
        if result.emission > newest:
            yield result


def window_key(result: QueryResult) -> WindowKey:
    """Returns the key that the results of one window have in common.

    A loss of signal has a key of its own, so it does not replace the result of an empty window.
    """
    is_lost = result.kind is ResultKind.LOST
    return result.registered, result.revision, result.begin, is_lost


def _group_key(result: QueryResult) -> GroupKey:
    return window_key(result), msgspec.json.encode(result.facets), result.is_other


def _missing(registry: QueryRegistry, query_id: str) -> QueryMissingError | None:
    try:
        registry.entry(query_id)
    except QueryMissingError as error:
        return error
    return None


def _between(config: ClientConfig, range_: OffsetRange, query_id: str) -> Iterator[QueryResult]:
    for record in read_records(config, "headrace.results", [range_]):
        result = result_of(query_id, record.key(), record.value())
        if result is not None:
            yield result


def _followed(
    config: ClientConfig, partition: TopicPartition, offset: int, query_id: str
) -> Iterator[QueryResult]:
    for record in follow(config, {partition: offset}):
        result = result_of(query_id, record.key, record.value)
        if result is not None:
            yield result
