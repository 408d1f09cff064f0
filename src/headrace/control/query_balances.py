"""Compares what pipelines have matched with what instances have added up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from headrace.control.project import LoadedProject
from headrace.control.query_registry import matched_topics
from headrace.control.services import broker_config
from headrace.errors import BrokerUnreachableError
from headrace.kafka.client import ClientConfig, describe
from headrace.kafka.range_reader import Record, read_backwards
from headrace.model import TopicPartition
from headrace.pipelines.ledger.sums import Hop
from headrace.pipelines.ledger.windows import Imbalance, WindowState
from headrace.queries.aggregate.counts import TopicCounts, added_up
from headrace.queries.aggregate.snapshots import SnapshotPosition, decode_snapshot_record
from headrace.queries.declaration import StandingQueries

# An instance writes its position every 5 s, and between them some records for each window.
_MAX_LOOK_OFFSETS = 1_000_000
_CATCHING_UP = "an instance that has begun anew takes records that its windows have already"


@dataclass(frozen=True)
class QueryBalance:
    """The matched events of one topic, each counted for every query and window that it is in.

    Attributes:
        queries: name of the standing queries.
        topic: of the events.
        state: whether every event is accounted for.
        counts: what has become of them, since the topics of the queries were created.
        differences: where events are missing or too many, by partition.
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
    positions = _positions(config, queries)
    missing = [number for number, position in positions.items() if position is None]
    for topic in topics:
        counts = {
            number: position.counts[topic]
            for number, position in positions.items()
            if position is not None and topic in position.counts
        }
        differences = tuple(_differences(queries.matched_topic, counts))
        unknown = _unknown(missing, counts.values())
        state = WindowState.UNKNOWN if unknown else WindowState.BALANCED
        yield QueryBalance(
            queries.name,
            topic,
            WindowState.UNBALANCED if differences else state,
            added_up(counts.values()),
            differences,
            unknown,
        )


def _positions(
    config: ClientConfig, queries: StandingQueries
) -> dict[int, SnapshotPosition | None]:
    """Returns the last position of each partition; None: no instance has ever had it."""
    live = describe(config, [queries.snapshots_topic]).get(queries.snapshots_topic)
    positions: dict[int, SnapshotPosition | None] = dict.fromkeys(range(queries.partitions))
    for partition in live.all_partitions if live else ():
        positions[partition.partition] = _position(config, partition)
    return positions


def _position(config: ClientConfig, partition: TopicPartition) -> SnapshotPosition | None:
    position = None
    for records in read_backwards(config, "headrace.reconcile", partition, _MAX_LOOK_OFFSETS):
        position = _last_position(records)
        if position is not None:
            break
    return position


def _last_position(records: Iterable[Record]) -> SnapshotPosition | None:
    last = None
    for record in records:
        try:
            read = decode_snapshot_record(record.value() or b"")
        except ValueError:
            continue  # written by another program
        if isinstance(read, SnapshotPosition):
            last = read
    return last


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


def _unknown(missing: Collection[int], counts: Iterable[TopicCounts]) -> str:
    if missing:
        numbers = ", ".join(map(str, missing))
        return f"no instance of `headrace query run` has reported on partitions {numbers}"
    return _CATCHING_UP if any(each.open is None for each in counts) else ""
