"""Reads the snapshots of a partition when an instance takes it."""

from __future__ import annotations

import logging

from headrace.errors import BrokerUnreachableError, SnapshotDamagedError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import earliest_offsets, high_watermarks
from headrace.kafka.read.open_transactions import OPEN_TRANSACTION_SECONDS, open_transactions
from headrace.kafka.read.range_reader import read_records
from headrace.model import OffsetRange, TopicPartition
from headrace.queries.records.snapshots import Restored

_LOG = logging.getLogger("headrace.queries")
# The last position is looked for among the last offsets, and then among 16 times as many.
_FIRST_LOOK_OFFSETS = 1_000
_LOOK_FACTOR = 16


class OpenTransactionError(Exception):
    """Snapshots can't be read up to their end: a transaction among them hangs."""


def read_snapshots(config: ClientConfig, partition: TopicPartition) -> Restored:
    """Returns the state that a partition of the snapshots holds, read to its end.

    The last position says at which offset the open windows start; it is looked for from the end.

    Raises:
        BrokerUnreachableError: if the brokers do not respond.
        OpenTransactionError: if a transaction stays open.
        SnapshotDamagedError: if the snapshots do not fit together.
    """
    try:
        restored = _read(config, partition)
    except BrokerUnreachableError as error:
        stable = open_transactions(config, [partition]).get(partition)
        if stable is None:
            raise
        raise OpenTransactionError(
            f"a transaction is open in {partition} at offset {stable}, and brokers do not end it: "
            "see `kafka-transactions.sh find-hanging`"
        ) from error
    if restored.damaged:
        raise SnapshotDamagedError(str(partition), restored.damaged)
    return restored


def _read(config: ClientConfig, partition: TopicPartition) -> Restored:
    first = earliest_offsets(config, [partition])[partition]
    end = high_watermarks(config, [partition])[partition]
    look = _FIRST_LOOK_OFFSETS
    while True:
        start = max(first, end - look)
        restored = _restored(config, OffsetRange(partition, start, end))
        position = restored.position
        if position is not None and restored.answered is not None:
            if first > position.base:
                _LOG.error(
                    "Snapshots before offset %d of %s are deleted: open windows may be lost",
                    *(first, partition),
                )
            base = max(first, position.base)
            if base >= start:
                return restored
            return _restored(config, OffsetRange(partition, base, end))
        if start == first:
            return restored
        look *= _LOOK_FACTOR


def _restored(config: ClientConfig, range_: OffsetRange) -> Restored:
    restored = Restored()
    records = read_records(
        config, "headrace.snapshots", [range_], silence_limit_seconds=OPEN_TRANSACTION_SECONDS
    )
    for record in records:
        value = record.value()
        if value is None:
            continue
        try:
            restored.take([value])
        except ValueError as error:
            _LOG.error(
                "Record %d of %s is left out: it is no record of headrace: %s",
                *(record.offset(), range_.partition, error),
            )
    return restored
