"""Looks at the load of a topic, proposes spreads, and applies them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from headrace.errors import SpreadInvalidError, SpreadSampleError
from headrace.kafka.client.admin_requests import describe
from headrace.model import ByAccount, Topic
from headrace.project.services import broker_config
from headrace.settings import Settings
from headrace.topics.spreads.change import applied_table, apply_spreads, first_since
from headrace.topics.spreads.loads import AccountReader, SampledLoads, sampled_loads
from headrace.topics.spreads.proposal import (
    Movement,
    movement,
    newest_widths,
    proposed_widths,
)
from headrace.topics.tail import json_text_of


@dataclass(frozen=True)
class PartitionLoad:
    """Load of a partition, of the records that were read.

    Attributes:
        partition: its number.
        records: that lie in it.
        bytes: of their keys and values.
        expected: bytes that would lie in it if the newest spreads had counted.
        proposed: bytes that would lie in it if the changes had counted.
    """

    partition: int
    records: int
    bytes: int
    expected: int
    proposed: int


@dataclass(frozen=True)
class SpreadChange:
    """Another number of partitions for an account.

    Attributes:
        account: of the events.
        records: of it that were read.
        bytes: of their keys and values.
        share: of the topic's bytes.
        width: over how many partitions it is spread at last.
        to: over how many it would be.
        moved: bytes that would lie in another partition.
    """

    account: str
    records: int
    bytes: int
    share: float
    width: int
    to: int
    moved: int


@dataclass(frozen=True)
class SpreadReport:
    """The load of a topic by account, and which spreads would make it even.

    Attributes:
        topic: its name.
        version: of what is applied to it; 0: nothing was.
        applied: whether the changes are in this version.
        counts_from: start of the first window that the changes count for; that which they would
            count for if they were applied now; None: nothing changes, or the topic has no lead.
        above: percent of the mean load of a partition that an account may put on one.
        records_since: of the timestamps of the records.
        records: that were read.
        bytes: of their keys and values.
        read_fraction: of the records since then that were read.
        accounts: number of those that were found.
        windows: number of windows of event time that were found.
        unknown_records: that have no account, or can't be read.
        hottest: load of the hottest partition, as a multiple of the mean.
        hottest_expected: if the newest spreads had counted.
        hottest_proposed: if the changes had counted.
        partitions: load of each.
        changes: of accounts, the largest first.
    """

    topic: str
    version: int
    applied: bool
    counts_from: datetime | None
    above: int
    records_since: datetime
    records: int
    bytes: int
    read_fraction: float
    accounts: int
    windows: int
    unknown_records: int
    hottest: float
    hottest_expected: float
    hottest_proposed: float
    partitions: tuple[PartitionLoad, ...]
    changes: tuple[SpreadChange, ...]


@dataclass(frozen=True)
class SpreadOptions:
    """What is looked at, and what is done.

    Attributes:
        last: how far back records are read, by their timestamps.
        limit: about how many are read at most.
        above: percent of the mean load of a partition that an account may put on one.
        widths: by account, over how many partitions it is spread, in place of what is proposed.
        apply: write the changes.
    """

    last: timedelta
    limit: int
    above: int
    widths: Mapping[str, int]
    apply: bool


def spread_topic(
    settings: Settings, topic: Topic, options: SpreadOptions, now: datetime
) -> SpreadReport:
    """Looks at the newest records of a topic, proposes changes, and applies them if asked to.

    Nothing is written without a change: a repetition of what was applied writes nothing.

    Raises:
        SpreadInvalidError: if the topic is not partitioned by account, a number of partitions is
            not possible, or spreads are to be applied and the topic declares no lead.
        SpreadSampleError: if there are no records to propose by, or none has an account.
        SpreadsChangedError: if spreads were applied by others meanwhile.
        TopicMissingError: if the topic is not in Kafka.
        BrokerUnreachableError: if the brokers do not answer.
        AuthorizationError: if an ACL is missing.
    """
    strategy = _strategy(topic, options)
    config = broker_config(settings)
    reads = AccountReader(topic, json_text_of(settings, topic.record_format))
    loads = sampled_loads(config, topic, reads, now - options.last, options.limit)
    _require_declared_partitions(topic, describe(config, [topic.name])[topic.name].partitions)
    if not options.widths:
        _require_accounts(topic, loads)
    table = applied_table(config, topic.name)
    widths = newest_widths(strategy, table.spreads)
    changes = _changes(topic, loads, widths, options)
    report = _report(topic, strategy, loads, widths, changes)
    report = replace(report, version=table.version, above=options.above)
    if not changes or strategy.lead is None:
        return report
    if not options.apply:
        return replace(report, counts_from=first_since(topic, table, now))
    table = apply_spreads(config, topic, table.version, changes)
    since = max(table.spreads[account][-1].since for account in changes)
    return replace(report, version=table.version, applied=True, counts_from=since)


def _strategy(topic: Topic, options: SpreadOptions) -> ByAccount:
    strategy = topic.partitioning
    if not isinstance(strategy, ByAccount):
        name = type(strategy).__name__
        reason = "only accounts are spread: declare ByAccount(window=..., lead=...)"
        raise SpreadInvalidError(topic.name, "partitioning", name, reason)
    if options.apply and strategy.lead is None:
        reason = (
            "producers do not follow what is applied: declare ByAccount(lead=...), which is longer "
            f"than latest_ahead ({topic.latest_ahead}), and restart them; or declare `spreads`"
        )
        raise SpreadInvalidError(topic.name, "lead", "None", reason)
    for account, width in options.widths.items():
        if not 1 <= width <= topic.partitions:
            reason = f"the topic has {topic.partitions} partitions: choose 1 to {topic.partitions}"
            raise SpreadInvalidError(topic.name, "--set", f"{account}={width}", reason)
    return strategy


def _require_declared_partitions(topic: Topic, live: int) -> None:
    if live != topic.partitions:
        reason = f"Kafka has {live}: producers count the declared ones, see `headrace plan`"
        raise SpreadInvalidError(topic.name, "partitions", str(topic.partitions), reason)


def _require_accounts(topic: Topic, loads: SampledLoads) -> None:
    records = loads.partition_records.total()
    if not records:
        reason = f"there are none since {loads.since:%FT%TZ}: look further back with --last"
        raise SpreadSampleError(topic.name, 0, reason)
    if not loads.sizes:
        reason = (
            "none can be read and has an account: the header `account` that ingest writes, the key "
            "of a topic without a declared key, or the field of ByAccount(account=...)"
        )
        raise SpreadSampleError(topic.name, records, reason)


def _changes(
    topic: Topic,
    loads: SampledLoads,
    widths: Mapping[str, int],
    options: SpreadOptions,
) -> dict[str, int]:
    if options.widths:
        chosen = options.widths.items()
        return {account: width for account, width in chosen if width != widths.get(account, 1)}
    total = loads.partitions.total()
    sizes = _by_account(loads.sizes)
    return proposed_widths(sizes, widths, topic.partitions, total, options.above)


def _report(
    topic: Topic,
    strategy: ByAccount,
    loads: SampledLoads,
    widths: Mapping[str, int],
    changes: Mapping[str, int],
) -> SpreadReport:
    moves = movement(loads.sizes, strategy, widths, changes, topic.partitions)
    total = loads.partitions.total()
    expected, proposed = moves.before + loads.unknown, moves.after + loads.unknown

    def hottest(by_partition: Counter[int]) -> float:
        most = max(by_partition.values(), default=0)
        return round(most * topic.partitions / total, 3) if total else 0.0

    return SpreadReport(
        topic=topic.name,
        version=0,
        applied=False,
        counts_from=None,
        above=0,
        records_since=loads.since,
        records=loads.partition_records.total(),
        bytes=total,
        read_fraction=round(float(loads.fraction), 6),
        accounts=len({account for account, _ in loads.sizes}),
        windows=len({number for _, number in loads.sizes}),
        unknown_records=loads.unknown_records.total(),
        hottest=hottest(loads.partitions),
        hottest_expected=hottest(expected),
        hottest_proposed=hottest(proposed),
        partitions=tuple(
            PartitionLoad(
                number,
                loads.partition_records[number],
                loads.partitions[number],
                expected[number],
                proposed[number],
            )
            for number in range(topic.partitions)
        ),
        changes=tuple(_listed(loads, widths, changes, moves)),
    )


def _listed(
    loads: SampledLoads, widths: Mapping[str, int], changes: Mapping[str, int], moves: Movement
) -> Iterator[SpreadChange]:
    total = loads.partitions.total()
    sizes, records = _by_account(loads.sizes), _by_account(loads.records)
    for account in sorted(changes, key=lambda account: (-sizes[account], account)):
        yield SpreadChange(
            account,
            records[account],
            sizes[account],
            round(sizes[account] / total, 6) if total else 0.0,
            widths.get(account, 1),
            changes[account],
            moves.moved[account],
        )


def _by_account(loads: Mapping[tuple[str, int], int]) -> Counter[str]:
    total: Counter[str] = Counter()
    for (account, _), load in loads.items():
        total[account] += load
    return total
