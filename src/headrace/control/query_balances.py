"""Compares what pipelines have matched with what instances have added up."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headrace.control.project import LoadedProject
from headrace.control.query_registry import matched_topics
from headrace.control.services import broker_config
from headrace.errors import BrokerUnreachableError
from headrace.kafka.client import ClientConfig, describe, watermarks
from headrace.kafka.range_reader import read_backwards, read_records
from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.ledger.sums import Hop
from headrace.pipelines.ledger.windows import Imbalance, WindowState
from headrace.queries.aggregate.counts import TopicCounts, added_up
from headrace.queries.aggregate.snapshots import (
    AnswerPosition,
    SnapshotPosition,
    decode_snapshot_record,
)
from headrace.queries.answer.counts import ResultCounts
from headrace.queries.declaration import StandingQueries

# An instance writes its position every 5 s, and between them some records for each window.
_MAX_LOOK_OFFSETS = 1_000_000
_OLD_SECONDS = 60.0
_CATCHING_UP = "an instance that has begun anew takes records that its windows have already"


@dataclass(frozen=True)
class QueryBalance:
    """The matches of one topic: an event counts once for every query and window that it is in.

    Attributes:
        queries: name of the standing queries.
        topic: of the events.
        state: whether every match is accounted for.
        counts: what has become of them, since the first snapshots of the partitions.
        in_results: of windows whose results are written.
        waiting: of windows that have ended, and wait for their place among the results; None: not
            known.
        differences: where matches are missing or too many, by partition.
        unknown: why it is not known whether they balance, as a sentence; empty: it is known.
    """

    queries: str
    topic: str
    state: WindowState
    counts: TopicCounts
    in_results: int = 0
    waiting: int | None = 0
    differences: tuple[Imbalance, ...] = ()
    unknown: str = ""


def balance_queries(
    project: LoadedProject, queries: Iterable[StandingQueries]
) -> tuple[QueryBalance, ...]:
    """Returns the balances of standing queries; unknown ones where brokers do not answer.

    Raises:
        AuthorizationError: if an ACL is missing.
    """
    balances: list[QueryBalance] = []
    for each in queries:
        topics = sorted(matched_topics(project, each.name))
        try:
            balances += query_balances(broker_config(project.settings), each, topics)
        except BrokerUnreachableError as error:
            state, nothing = WindowState.UNKNOWN, TopicCounts()
            for topic in topics:
                unknown = QueryBalance(each.name, topic, state, nothing, unknown=str(error))
                balances.append(unknown)
    return tuple(balances)


def query_balances(
    config: ClientConfig, queries: StandingQueries, topics: Iterable[str]
) -> Iterator[QueryBalance]:
    """Yields the balance of each topic whose events are matched.

    It is as of the last snapshots of the instances, which are some seconds old.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    reports = _reports(config, queries)
    for topic in topics:
        counts = {
            number: report.counts[topic]
            for number, report in reports.items()
            if report is not None and topic in report.counts
        }
        result_counts = {
            number: report.result_counts[topic]
            for number, report in reports.items()
            if report is not None and topic in report.result_counts
        }
        differences = tuple(_differences(queries, counts, result_counts))
        unknown = _unknown(reports, counts, result_counts)
        state = WindowState.UNKNOWN if unknown else WindowState.BALANCED
        yield QueryBalance(
            queries.name,
            topic,
            WindowState.UNBALANCED if differences else state,
            added_up(counts.values()),
            sum(each.answered for each in result_counts.values()),
            _waiting(result_counts.values()),
            differences,
            unknown,
        )


@dataclass(frozen=True)
class _Report:
    """What the last snapshot of a partition says.

    Attributes:
        counts: by topic of the events.
        result_counts: by topic of the events.
        is_behind: whether it is old, and there are records that no instance has taken since.
        is_open: whether its last records are of a batch whose tick is not behind them.
    """

    counts: Mapping[str, TopicCounts]
    result_counts: Mapping[str, ResultCounts]
    is_behind: bool
    is_open: bool


def _reports(config: ClientConfig, queries: StandingQueries) -> dict[int, _Report | None]:
    """Returns the reports of partitions by number; None: no instance has ever had it."""
    reports: dict[int, _Report | None] = dict.fromkeys(range(queries.partitions))
    topics = (queries.snapshots_topic, queries.matched_topic)
    if not describe(config, topics).keys() >= set(topics):
        return reports
    matched = {number: TopicPartition(queries.matched_topic, number) for number in reports}
    ends = watermarks(config, matched.values())
    for number, partition in matched.items():
        last = _last_positions(config, TopicPartition(queries.snapshots_topic, number))
        if last is not None:
            untaken = OffsetRange(partition, last.position.offset, ends[partition][1])
            reports[number] = _report(config, last, untaken)
    return reports


@dataclass(frozen=True)
class _Positions:
    """The last positions of a partition, and when that of windows was written, since 1970."""

    position: SnapshotPosition
    written_ms: int
    answered: AnswerPosition


def _report(config: ClientConfig, last: _Positions, untaken: OffsetRange) -> _Report:
    counts = last.position.counts
    is_old = time.time() - last.written_ms / 1000 > _OLD_SECONDS
    has_begun = any(each.begun for each in counts.values())
    has_more = (is_old or has_begun) and _has_records(config, untaken)
    return _Report(counts, last.answered.counts, is_old and has_more, has_begun and not has_more)


def _last_positions(config: ClientConfig, snapshots: TopicPartition) -> _Positions | None:
    """Returns the last positions; None: there is no snapshot."""
    for records in read_backwards(config, "headrace.reconcile", snapshots, _MAX_LOOK_OFFSETS):
        position, written_ms, answered = None, 0, None
        for record in records:
            try:
                decoded = decode_snapshot_record(record.value() or b"")
            except ValueError:
                continue  # written by another program
            if isinstance(decoded, SnapshotPosition):
                position, written_ms = decoded, record.timestamp()[1]
            elif isinstance(decoded, AnswerPosition):
                answered = decoded
        if position is not None and answered is not None:
            return _Positions(position, written_ms, answered)
    return None


def _has_records(config: ClientConfig, range_: OffsetRange) -> bool:
    """Whether there are records: offsets are also those of the ends of transactions."""
    return next(read_records(config, "headrace.reconcile", [range_]), None) is not None


def _differences(
    queries: StandingQueries,
    counts: Mapping[int, TopicCounts],
    result_counts: Mapping[int, ResultCounts],
) -> Iterator[Imbalance]:
    for number, each in counts.items():
        matched = TopicPartition(queries.matched_topic, number)
        yield from _missing(Hop.MATCHED_RECORDS, each.missing_records, matched)
        yield from _missing(Hop.QUERY_WINDOWS, each.missing_in_windows, matched)
    for number, results in result_counts.items():
        ended = TopicPartition(queries.ended_topic, number)
        yield from _missing(Hop.ENDED_WINDOWS, results.missing_records, ended)
        yield from _missing(Hop.QUERY_RESULTS, results.missing_in_results, ended)


def _missing(hop: Hop, missing: int, partition: TopicPartition) -> Iterator[Imbalance]:
    if missing:
        yield Imbalance(hop, missing, 0, ids_differ=False, partition=partition.path)


def _waiting(counts: Iterable[ResultCounts]) -> int | None:
    total = 0
    for each in counts:
        if each.waiting is None:
            return None
        total += each.waiting
    return total


def _unknown(
    reports: Mapping[int, _Report | None],
    counts: Mapping[int, TopicCounts],
    result_counts: Mapping[int, ResultCounts],
) -> str:
    missing = [number for number, report in reports.items() if report is None]
    behind = [number for number, report in reports.items() if report and report.is_behind]
    if missing:
        return f"no instance of `headrace query run` has reported on {_partitions(missing)}"
    if behind:
        return f"no instance takes what was matched in {_partitions(behind)}"
    if alone := [number for number, report in reports.items() if report and report.is_open]:
        return (
            f"the last records of {_partitions(alone)} are of no batch that has ended: another "
            "program has written them"
        )
    if not counts:
        return "no batch of its events was matched yet"
    is_open_known = all(each.open is not None for each in counts.values())
    is_known = is_open_known and _waiting(result_counts.values()) is not None
    return "" if is_known else _CATCHING_UP


def _partitions(numbers: Iterable[int]) -> str:
    return f"partitions {', '.join(map(str, numbers))}"
