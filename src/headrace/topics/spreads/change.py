"""Applies spreads: the next version of a topic's table, if it follows the one that was seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from headrace.errors import SpreadsChangedError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.table.changelog import ensure_changelog
from headrace.kafka.table.topic_table import read_table
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.transactions import (
    TransactionalProducer,
    TransactionFencedError,
    TransactionUnsettledError,
)
from headrace.model import ByAccount, Topic
from headrace.model.partitioning import first_window
from headrace.topics.spreads.spread_table import SPREADS_TOPIC, SpreadTable

MARGIN = timedelta(minutes=2)
"""For the transaction, for clocks that differ, and for brokers that are late to show a topic."""


def _now() -> datetime:
    return datetime.now(UTC)


def lead_of(topic: Topic) -> timedelta | None:
    """Returns the lead that a topic declares; None: it takes only declared spreads."""
    return topic.partitioning.lead if isinstance(topic.partitioning, ByAccount) else None


def first_since(topic: Topic, table: SpreadTable, now: datetime) -> datetime:
    """Returns the start of the first window that spreads which are applied now can count for.

    Args:
        topic: by account.
        table: what was applied before. Where its lead is longer, producers may know that one; those
            that have not read it know none of its spreads, so no later one counts before them.
        now: the time.
    """
    if not isinstance(topic.partitioning, ByAccount):
        raise TypeError(f"topic {topic.name!r} is not partitioned by account")
    lead = max(lead_of(topic) or timedelta(0), table.lead or timedelta(0))
    applied = [spread.since for spreads in table.spreads.values() for spread in spreads]
    return first_window(max([now + lead + MARGIN, *applied]), topic.partitioning.window)


def applied_table(config: ClientConfig, topic: str) -> SpreadTable:
    """Returns what was applied to a topic.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        AuthorizationError: if an ACL is missing.
    """
    value = read_table(config, SPREADS_TOPIC, settled=True).get(topic.encode())
    return SpreadTable() if value is None else SpreadTable.decoded(value)


def apply_spreads(
    config: ClientConfig,
    topic: Topic,
    seen: int,
    widths: Mapping[str, int],
    now: Callable[[], datetime] = _now,
) -> SpreadTable:
    """Writes the next version of what is applied, and returns it.

    Args:
        config: of librdkafka.
        topic: whose accounts these are; it takes spreads.
        seen: version that it follows.
        widths: by account, over how many partitions it is spread.
        now: returns the time.

    Raises:
        SpreadsChangedError: if there is another version than ``seen``, or it is unknown whether
            this one was written.
        BrokerUnreachableError: if the brokers do not answer.
        AuthorizationError: if an ACL is missing.
    """
    name = topic.name
    ensure_changelog(config, SPREADS_TOPIC)
    try:
        # Before the table is read: who began earlier can't write any more.
        producer = TransactionalProducer(config, f"headrace.spreads.{name}")
        try:
            table = applied_table(config, name)
            if table.version != seen:
                raise SpreadsChangedError(name, table.version, f"version {seen} was looked at")
            # The time of now: what was done before may have taken minutes.
            table = table.changed(widths, first_since(topic, table, now()), lead_of(topic))
            record = ProducerRecord(SPREADS_TOPIC, name.encode(), table.encoded(), ())
            producer.send([record])
        finally:
            producer.close()
    except TransactionFencedError as error:
        raise SpreadsChangedError(name, seen, "someone else applies spreads just now") from error
    except TransactionUnsettledError as error:
        raise SpreadsChangedError(name, seen, f"not confirmed: {error.reason}") from error
    return table
