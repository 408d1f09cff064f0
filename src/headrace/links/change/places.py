"""Where producers of a topic put the records of another one, and by which keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headrace.errors import LinkRecordError, RecordRejectedError, SpreadsUnknownError
from headrace.kafka.client.headers import headers_of
from headrace.links.target import Rejection
from headrace.model import (
    ByAccount,
    ByField,
    ByHash,
    ByShard,
    Random,
    Topic,
    TopicPartition,
    partition_of,
    value_at,
)
from headrace.model.partitioning import partition_of_key
from headrace.topics.spreads.loads import DocumentReader, TextOf
from headrace.topics.spreads.placing import AccountPlace

Headers = Sequence[tuple[str, bytes | None]]
ByAccounts = Callable[[bytes | None, bytes | None, Headers], int]
"""As :class:`AccountPlace`."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNREADABLE = (ValueError, TypeError, OverflowError, LookupError, RecordRejectedError)


@dataclass(frozen=True, slots=True)
class Placed:
    """What a record has in the new topic.

    Attributes:
        partition: its number.
        key: its bytes.
        is_event: whether it could be read; otherwise it keeps its key.
    """

    partition: int
    key: bytes | None
    is_event: bool = True


class RecordPlaces:
    """Places the records of a topic as producers of a new one place their events.

    A record has one place, however often it is asked for: what producers place at random is placed
    by where it was.

    Args:
        old: whose records these are.
        new: where they go.
        text_of: of values of registered formats; None: values are JSON texts.
        by_account: where records of accounts go; None: as the new topic declares it.
    """

    def __init__(
        self,
        old: Topic,
        new: Topic,
        text_of: TextOf | None = None,
        by_account: ByAccounts | None = None,
    ) -> None:
        self._new, self._count = new, new.partitions
        self._key = new.key if new.key != old.key else None
        self._reads = DocumentReader(new, text_of)
        strategy = new.partitioning
        self._by_account: ByAccounts | None = by_account
        if isinstance(strategy, ByAccount) and by_account is None:
            self._by_account = AccountPlace(new, text_of, None)
        self._by_event = (
            partition_of(strategy, new.partitions)
            if isinstance(strategy, ByField | ByHash | ByShard)
            else None
        )
        self._has_time = isinstance(strategy, ByHash)

    def of(self, message: Any) -> Placed:
        """Returns the place of a record.

        Raises:
            SpreadsUnknownError: if it is not known yet which spreads count for its window. No
                place is exact: the one that a later version gives its account is another one.
        """
        key, value, headers = message.key(), message.value(), headers_of(message) or ()
        try:
            fields = self._reads.document(value, headers) if self._key or self._by_event else {}
            if self._key is not None:
                key = _key_of(fields, self._key)
            return Placed(self._partition(message, fields, key, value, headers), key)
        except _UNREADABLE:
            return Placed(message.partition() % self._count, message.key(), is_event=False)

    def _partition(
        self,
        message: Any,
        fields: Mapping[str, Any],
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> int:
        if self._by_account is not None:
            return self._by_account(value, key, headers)
        if self._by_event is not None:
            time = self._reads.time(fields) if self._has_time else _EPOCH
            if time is None:
                raise LookupError
            return self._by_event(fields, "", time)
        if isinstance(self._new.partitioning, Random):
            return int(message.offset() + message.partition()) % self._count
        if key is None:  # without one, producers choose any partition
            return int(message.partition()) % self._count
        return partition_of_key(key, self._count)


class PlacedRecord:
    """A record of the old topic, with the key that it has in the new one."""

    def __init__(self, message: Any, key: bytes | None) -> None:
        self._message, self._key = message, key

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> Any:
        return self._message.value()

    def offset(self) -> Any:
        return self._message.offset()

    def timestamp(self) -> Any:
        return self._message.timestamp()


def placing(
    places: RecordPlaces,
    topic: str,
    record_error: Callable[[TopicPartition, Rejection], LinkRecordError],
) -> Callable[[Any], tuple[TopicPartition, Any]]:
    """Returns what says where a record is copied to, and as what.

    It raises LinkRecordError for a record that has no known place.
    """

    def placed(message: Any) -> tuple[TopicPartition, Any]:
        try:
            place = places.of(message)
        except SpreadsUnknownError as error:
            source = TopicPartition(message.topic(), message.partition())
            raise record_error(source, Rejection(message.offset(), str(error))) from error
        return TopicPartition(topic, place.partition), PlacedRecord(message, place.key)

    return placed


def _key_of(fields: Mapping[str, Any], name: str) -> bytes:
    value = value_at(fields, name)
    encoded = b"" if value is None else str(value).encode()
    if not encoded:
        raise LookupError
    return encoded
