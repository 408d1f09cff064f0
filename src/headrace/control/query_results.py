"""Reads the results of a standing query, each group of a window once."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from headrace.control.project import LoadedProject
from headrace.control.query_registry import declared_queries, registered_query
from headrace.control.services import broker_config
from headrace.errors import QueryMissingError, TopicMissingError
from headrace.kafka.client import ClientConfig, consumer, describe, watermarks
from headrace.kafka.range_reader import read_ranges
from headrace.kafka.tail import follow
from headrace.model import OffsetRange, TopicPartition
from headrace.model.partitioning import partition_of_key
from headrace.queries.result import QueryResult, ResultKind, decode_result

_LOG = logging.getLogger("headrace.queries")
_SILENCE_SECONDS = 30.0
# Of groups that may have another result: those of the newest windows.
_MAX_FOLLOWED_GROUPS = 100_000

ResultStart: TypeAlias = Literal["earliest", "latest"]
"""The first results that are there; those that come from now on."""

WindowKey: TypeAlias = tuple[str, int, str, bool]
"""When the query was registered, its revision, when the window begins, and whether it is lost."""

GroupKey: TypeAlias = tuple[WindowKey, bytes, bool]
"""The window, the facets as JSON, and whether it is the group of all others."""


@dataclass(frozen=True)
class ResultOptions:
    """Which results are read.

    Attributes:
        follow: wait for more, for ever.
        start: where to begin; without ``follow``, always at the earliest.
        limit: the newest so many; with ``follow``, it ends after so many. None: no limit.
    """

    follow: bool = False
    start: ResultStart = "earliest"
    limit: int | None = None


def query_results(
    project: LoadedProject,
    query_id: str,
    options: ResultOptions | None = None,
    *,
    queries: str | None = None,
) -> Iterator[QueryResult]:
    """Returns the results of a query; no consumer group is joined, and no offset committed.

    =============== ============================================================================
    without follow  the newest result of each group, by the ends of windows, the newest last
    with follow     each result once, as it comes: one with a greater ``emission`` replaces
                    those of its window before it
    =============== ============================================================================

    Results of a query that has expired or was cancelled are there until Kafka deletes them.

    Raises:
        QueryMissingError: if the id is unknown, and there are no results of it.
        NotDeclaredError: if there are no such standing queries.
        TopicMissingError: if there is no topic of results to follow.
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
        RecordsUnreadableError: if records are damaged.
    """
    chosen = options or ResultOptions()
    topic = declared_queries(project, queries).results_topic
    missing = _missing(project, query_id, queries)
    config = broker_config(project.settings)
    partition = results_partition(config, topic, query_id)
    if partition is None:
        if missing is not None:
            raise missing
        if chosen.follow:
            raise TopicMissingError(topic)
        return iter(())
    begin, end = watermarks(config, [partition])[partition]
    known = _between(config, OffsetRange(partition, begin, end), query_id)
    if missing is not None:
        first = next(known, None)
        if first is None:
            raise missing
        known = itertools.chain([first], known)
    if not chosen.follow:
        newest = newest_results(known)
        return iter(newest if chosen.limit is None else newest[-chosen.limit :])
    before = known if chosen.start == "earliest" else ()
    coming = _followed(config, partition, end, query_id)
    return itertools.islice(unrepeated(itertools.chain(before, coming)), chosen.limit)


def results_partition(config: ClientConfig, topic: str, query_id: str) -> TopicPartition | None:
    """Returns the partition that has the results of a query; None: there is no such topic."""
    live = describe(config, [topic]).get(topic)
    if live is None:
        return None
    return TopicPartition(topic, partition_of_key(query_id.encode(), live.partitions))


def newest_results(results: Iterable[QueryResult]) -> list[QueryResult]:
    """Returns the results that count, by the ends of their windows, the newest last.

    Of each window those of its greatest ``emission`` count: with another emission, a group may have
    become one of the others. Results of one window keep their order.
    """
    emissions: dict[WindowKey, int] = {}
    newest: dict[GroupKey, QueryResult] = {}
    for result in unrepeated(results):
        window = window_key(result)
        emissions[window] = max(result.emission, emissions.get(window, 0))
        newest[_group_key(result)] = result
    counting = (
        result for result in newest.values() if result.emission == emissions[window_key(result)]
    )
    # Windows begin and end at whole seconds, so that their texts are in the order of time.
    return sorted(counting, key=lambda result: result.end)


def unrepeated(results: Iterable[QueryResult]) -> Iterator[QueryResult]:
    """Yields results without those that an earlier one with the same or a greater emission covers.

    It knows the groups of 100,000 results.
    """
    emissions: dict[GroupKey, int] = {}
    for result in results:
        group = _group_key(result)
        newest = emissions.pop(group, -1)
        # Behind the others: the groups of the oldest windows are forgotten first.
        emissions[group] = max(result.emission, newest)
        if len(emissions) > _MAX_FOLLOWED_GROUPS:
            del emissions[next(iter(emissions))]
        if result.emission > newest:
            yield result


def window_key(result: QueryResult) -> WindowKey:
    """Returns what the results of one window have in common.

    A loss of signal is a window of its own: it says more than that the window is empty.
    """
    is_lost = result.kind is ResultKind.LOST
    return result.registered, result.revision, result.begin, is_lost


def _group_key(result: QueryResult) -> GroupKey:
    return window_key(result), msgspec.json.encode(result.facets), result.is_other


def _missing(
    project: LoadedProject, query_id: str, queries: str | None
) -> QueryMissingError | None:
    try:
        registered_query(project, query_id, queries=queries)
    except QueryMissingError as error:
        return error
    return None


def _between(config: ClientConfig, range_: OffsetRange, query_id: str) -> Iterator[QueryResult]:
    reader = consumer(config, "headrace.results")
    try:
        for chunk in read_ranges(reader, [range_], config, silence_limit_seconds=_SILENCE_SECONDS):
            for record in chunk.records:
                yield from _decoded(record.key(), record.value(), query_id)
    finally:
        reader.close()


def _followed(
    config: ClientConfig, partition: TopicPartition, offset: int, query_id: str
) -> Iterator[QueryResult]:
    for record in follow(config, {partition: offset}):
        yield from _decoded(record.key, record.value, query_id)


def _decoded(key: bytes | None, value: bytes | None, query_id: str) -> Iterator[QueryResult]:
    """Yields the result of a record, if it is one of the query."""
    if key != query_id.encode() or value is None:
        return
    try:
        yield decode_result(value)
    except ValueError as error:
        _LOG.warning("A record of query %s is no result: %s", query_id, error)
