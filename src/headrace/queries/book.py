"""Compares the matches that pipelines have sent with those that instances have added up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from headrace.errors import BrokerUnreachableError
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.read.range_reader import Record, read_backwards, read_records
from headrace.ledger.balance import Book, BookLine
from headrace.ledger.sums import Hop
from headrace.ledger.windows import Imbalance, WindowState
from headrace.model import OffsetRange, TopicPartition
from headrace.queries.declaration import StandingQueries
from headrace.queries.records.counts import ResultCounts, TopicCounts, added_up, known_sum
from headrace.queries.records.snapshots import (
    AnswerPosition,
    SnapshotPosition,
    SnapshotRecord,
    decode_snapshot_record,
)

# An instance writes its position every 5 s. Where it writes a snapshot of every open window first,
# there are as many records between two positions as there are windows.
_MAX_LOOK_OFFSETS = 20_000_000
QUERY_COLUMNS = ("matched", "in results", "waiting", "in open windows", "late", "faulty")
_CATCHING_UP = "an instance that has started over takes records that its windows have already"


@dataclass(frozen=True)
class QueryBook(Book):
    """The matches of one topic: an event counts once for every query and window that it is in.

    Attributes:
        queries: name of the standing queries.
        topic: name of the topic of the events.
        state: whether every match is accounted for.
        counts: counts of sent, late, faulty and added matches since the first snapshots.
        in_results: matches in windows whose results are written.
        waiting: matches in ended windows whose results are not written yet; ``None`` if unknown.
        differences: missing and surplus matches, by partition.
        unknown: why it is not known whether the matches balance, as a sentence; empty if it is.
    """

    section: ClassVar = "queries"
    heading: ClassVar = "standing queries {0.queries}"

    queries: str
    topic: str
    state: WindowState
    counts: TopicCounts
    in_results: int = 0
    waiting: int | None = 0
    differences: tuple[Imbalance, ...] = ()
    unknown: str = ""

    def columns(self) -> tuple[str, ...]:
        """Returns the titles of counts: what ``matched`` lacks, the differences say."""
        return QUERY_COLUMNS

    def lines(self) -> Iterator[BookLine]:
        """Yields the line of the topic."""
        counts = self.counts
        ended = (self.in_results, self.waiting)
        figures = (counts.sent, *ended, counts.open, counts.late, counts.faulty)
        unknown = "" if self.differences else self.unknown
        yield BookLine(self.topic, self.state, figures, self.differences, unknown)


def query_books(
    config: ClientConfig,
    queries: StandingQueries,
    topics: Iterable[str],
    max_age_seconds: float = 60.0,
) -> Iterator[QueryBook]:
    """Yields the book of each topic whose events are matched.

    Books are as of the instances' last snapshots, which are some seconds old. They are unknown if
    the brokers do not answer.

    Args:
        config: librdkafka's settings of the cluster.
        queries: the standing queries.
        topics: the names of the topics of events.
        max_age_seconds: a position is old if no newer position was written for this time.

    Raises:
        AuthorizationError: if an ACL is missing.
    """
    reports, unreachable = {}, ""
    try:
        reports = _reports(config, queries, max_age_seconds)
    except BrokerUnreachableError as error:
        unreachable = str(error)
    for topic in topics:
        counts = {
            n: report.counts[topic] for n, report in reports.items() if topic in report.counts
        }
        answered = {number: report.answered.counts for number, report in reports.items()}
        results = {
            number: of_topics[topic] for number, of_topics in answered.items() if topic in of_topics
        }
        on_the_way = _on_the_way(reports, topic)
        total = added_up(counts.values())
        waiting = known_sum(of_results.waiting for of_results in results.values())
        differences = tuple(_differences(queries, counts, results))
        unknown = unreachable or _unknown(queries, reports, counts, on_the_way)
        if not unknown and None in (total.open, waiting):
            unknown = _CATCHING_UP
        yield QueryBook(
            queries.name,
            topic,
            WindowState.of(differences, unknown),
            total,
            sum(of_results.answered for of_results in results.values()),
            None if waiting is None else waiting + on_the_way.total(),
            differences,
            unknown,
        )


@dataclass(frozen=True)
class _Report:
    """The last positions that an instance has written for a partition.

    Attributes:
        counts: counts of matches by topic of the events, as of the last snapshot.
        answered: position of the results.
        is_behind: whether the snapshot is old and matched records follow it that are not read.
        is_open: whether the last matched records belong to a batch without a tick.
        is_old: whether the position of the results is old.
    """

    counts: Mapping[str, TopicCounts]
    answered: AnswerPosition
    is_behind: bool
    is_open: bool
    is_old: bool


def _reports(
    config: ClientConfig, queries: StandingQueries, max_age_seconds: float
) -> dict[int, _Report]:
    """Returns reports by partition number, without partitions that no instance has written for."""
    topics = (queries.snapshots_topic, queries.matched_topic)
    if not describe(config, topics).keys() >= set(topics):
        return {}
    reports: dict[int, _Report] = {}
    for number in range(queries.partitions):
        snapshots, matched = (TopicPartition(topic, number) for topic in topics)
        if (last := last_positions(config, snapshots)) is None:
            continue
        (position, written), (answered, answered_at) = last
        oldest = time.time() - max_age_seconds
        has_begun = any(of_topic.begun for of_topic in position.counts.values())
        # Whether records follow counts only of an old position, or of a batch that has started.
        looks = (is_old := written < oldest) or has_begun
        has_more = looks and _has_records(config, matched, position.offset)
        reports[number] = _Report(
            position.counts,
            answered,
            is_behind=is_old and has_more,
            is_open=has_begun and not has_more,
            is_old=answered_at < oldest,
        )
    return reports


def last_positions(
    config: ClientConfig, snapshots: TopicPartition
) -> tuple[tuple[SnapshotPosition, float], tuple[AnswerPosition, float]] | None:
    """Returns the last positions that an instance has written, and when it wrote each.

    Times are in seconds since 1970. Returns ``None`` if a position is not among the newest records.

    Args:
        config: librdkafka's settings of the cluster.
        snapshots: a partition of the snapshots topic.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    position: tuple[SnapshotPosition, float] | None = None
    answered: tuple[AnswerPosition, float] | None = None
    for record in read_backwards(config, "headrace.reconcile", snapshots, _MAX_LOOK_OFFSETS):
        decoded, written = _decoded(record), record.timestamp()[1] / 1000
        if position is None and isinstance(decoded, SnapshotPosition):
            position = decoded, written
        if answered is None and isinstance(decoded, AnswerPosition):
            answered = decoded, written
        if position is not None and answered is not None:
            return position, answered
    return None


def _decoded(record: Record) -> SnapshotRecord | None:
    """Returns a decoded record; ``None`` if another program has written it."""
    try:
        return decode_snapshot_record(record.value() or b"")
    except ValueError:
        return None


def _has_records(config: ClientConfig, partition: TopicPartition, start: int) -> bool:
    """Returns whether records follow an offset; transaction markers take offsets as well."""
    _, end = watermarks(config, [partition])[partition]
    untaken = OffsetRange(partition, start, end)
    return next(read_records(config, "headrace.reconcile", [untaken]), None) is not None


def _differences(
    queries: StandingQueries,
    counts: Mapping[int, TopicCounts],
    result_counts: Mapping[int, ResultCounts],
) -> Iterator[Imbalance]:
    for number, of_partition in counts.items():
        matched = TopicPartition(queries.matched_topic, number)
        yield from _missing(Hop.MATCHED_RECORDS, of_partition.missing_records, matched)
        yield from _missing(Hop.QUERY_WINDOWS, of_partition.missing_in_windows, matched)
    for number, results in result_counts.items():
        ended = TopicPartition(queries.ended_topic, number)
        yield from _missing(Hop.ENDED_WINDOWS, results.missing_records, ended)
        yield from _missing(Hop.QUERY_RESULTS, results.missing_in_results, ended)


def _missing(hop: Hop, missing: int, partition: TopicPartition) -> Iterator[Imbalance]:
    if missing:
        yield Imbalance(hop, missing, partition=partition.path)


def _on_the_way(reports: Mapping[int, _Report], topic: str) -> Counter[int]:
    """Returns the matches in ended windows that were sent and not yet read, by partition."""
    on_the_way: Counter[int] = Counter()
    for number, sender in reports.items():
        for target, matches in sender.answered.sent.items():
            clocks = reports[target].answered.clocks.get(number) if target in reports else None
            is_same = clocks is not None and clocks.since_ms == sender.answered.since_ms
            taken = clocks.matches.get(topic, 0) if clocks is not None and is_same else 0
            on_the_way[target] += max(matches.get(topic, 0) - taken, 0)
    return on_the_way


def _unknown(
    queries: StandingQueries,
    reports: Mapping[int, _Report],
    counts: Mapping[int, TopicCounts],
    on_the_way: Mapping[int, int],
) -> str:
    if missing := [number for number in range(queries.partitions) if number not in reports]:
        return f"no instance of `headrace query run` has reported on {_partitions(missing)}"
    if behind := [number for number, report in reports.items() if report.is_behind]:
        return f"no instance takes what was matched in {_partitions(behind)}"
    if wait := [
        number for number, report in reports.items() if report.is_old and on_the_way[number]
    ]:
        return f"no instance takes the windows that have ended, in {_partitions(wait)}"
    if alone := [number for number, report in reports.items() if report.is_open]:
        return (
            f"the last records of {_partitions(alone)} are of no batch that has ended: another "
            "program has written them"
        )
    return "" if counts else "no batch of its events was matched yet"


def _partitions(numbers: Iterable[int]) -> str:
    return f"partitions {', '.join(map(str, numbers))}"
