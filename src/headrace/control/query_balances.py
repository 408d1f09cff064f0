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
from headrace.kafka.range_reader import Record, read_backwards, read_records
from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.ledger.sums import Hop
from headrace.pipelines.ledger.windows import Imbalance, WindowState
from headrace.queries.aggregate.counts import TopicCounts, added_up
from headrace.queries.aggregate.snapshots import SnapshotPosition, decode_snapshot_record
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
        differences: where matches are missing or too many, by partition.
        unknown: why it is not known whether they balance, as a sentence; empty: it is known.
    """

    queries: str
    topic: str
    state: WindowState
    counts: TopicCounts
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
        differences = tuple(_differences(queries.matched_topic, counts))
        unknown = _unknown(reports, counts)
        state = WindowState.UNKNOWN if unknown else WindowState.BALANCED
        yield QueryBalance(
            queries.name,
            topic,
            WindowState.UNBALANCED if differences else state,
            added_up(counts.values()),
            differences,
            unknown,
        )


@dataclass(frozen=True)
class _Report:
    """What the last snapshot of a partition says.

    Attributes:
        counts: by topic of the events.
        is_behind: whether it is old, and there are records that no instance has taken since.
        is_open: whether its last records are of a batch whose tick is not behind them.
    """

    counts: Mapping[str, TopicCounts]
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
        snapshots = TopicPartition(queries.snapshots_topic, number)
        for records in read_backwards(config, "headrace.reconcile", snapshots, _MAX_LOOK_OFFSETS):
            last = _last_position(records)
            if last is not None:
                position, written_ms = last
                untaken = OffsetRange(partition, position.offset, ends[partition][1])
                reports[number] = _report(config, position, written_ms, untaken)
                break
    return reports


def _report(
    config: ClientConfig, position: SnapshotPosition, written_ms: int, untaken: OffsetRange
) -> _Report:
    counts = position.counts or {}
    is_old = time.time() - written_ms / 1000 > _OLD_SECONDS
    has_begun = any(each.begun for each in counts.values())
    has_more = (is_old or has_begun) and _has_records(config, untaken)
    return _Report(counts, is_old and has_more, has_begun and not has_more)


def _last_position(records: Iterable[Record]) -> tuple[SnapshotPosition, int] | None:
    """Returns the last position and when it was written, in milliseconds since 1970."""
    last = None
    for record in records:
        try:
            position = decode_snapshot_record(record.value() or b"")
        except ValueError:
            continue  # written by another program
        if isinstance(position, SnapshotPosition):
            last = position, record.timestamp()[1]
    return last


def _has_records(config: ClientConfig, range_: OffsetRange) -> bool:
    """Whether there are records: offsets are also those of the ends of transactions."""
    return next(read_records(config, "headrace.reconcile", [range_]), None) is not None


def _differences(topic: str, counts: Mapping[int, TopicCounts]) -> Iterator[Imbalance]:
    for number, each in counts.items():
        partition = TopicPartition(topic, number).path
        hops = {
            Hop.MATCHED_RECORDS: each.missing_records,
            Hop.QUERY_WINDOWS: each.missing_in_windows,
        }
        for hop, missing in hops.items():
            if missing:
                yield Imbalance(hop, missing, 0, ids_differ=False, partition=partition)


def _unknown(reports: Mapping[int, _Report | None], counts: Mapping[int, TopicCounts]) -> str:
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
    return _CATCHING_UP if any(each.open is None for each in counts.values()) else ""


def _partitions(numbers: Iterable[int]) -> str:
    return f"partitions {', '.join(map(str, numbers))}"
