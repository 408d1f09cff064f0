"""Places records of topics that take spreads, where the producer has no event but its bytes."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.errors import RecordRejectedError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import AppliedSpreads, ByAccount, Registered, Topic, partition_of
from headrace.model.partitioning import window_start
from headrace.settings import Settings
from headrace.topics.schemas import protobuf_lookup, require_extras, schema_lookup
from headrace.topics.spreads.following import FollowedSpreads, SpreadsReader
from headrace.topics.spreads.loads import AccountReader, TextOf
from headrace.topics.tail import text_maker

if TYPE_CHECKING:
    from headrace.events.avro.values import SchemaLookup
    from headrace.events.protobuf.values import ProtobufLookup

Headers = Iterable[tuple[str, bytes | None]]
_UNPLACED = (
    "its partition is that of its account and event time, and the record has none that can be "
    "read: send an event with both, the account in the header `account`, or a `partition`"
)


@dataclass(frozen=True)
class SpreadTopics:
    """Topics of a project whose producers follow what is applied; picklable.

    Attributes:
        topics: that take spreads.
        schemas: of Avro, by id; None: there is no schema registry.
        protobuf: those of Protobuf.
    """

    topics: tuple[Topic, ...]
    schemas: SchemaLookup | None = None
    protobuf: ProtobufLookup | None = None

    @classmethod
    def of(cls, topics: Collection[Topic], settings: Settings) -> SpreadTopics | None:
        """Returns those of the topics that take spreads; None: none does.

        Raises:
            ExtraMissingError: if the extra of the format of one is not installed.
        """
        spread = tuple(topic for topic in topics if topic.takes_spreads)
        if not spread:
            return None
        require_extras(spread)
        if not any(isinstance(topic.record_format, Registered) for topic in spread):
            return cls(spread)
        return cls(spread, schemas=schema_lookup(settings), protobuf=protobuf_lookup(settings))


class SpreadPlaces:
    """The partitions of records, as `headrace ingest` chooses those of events. On any thread.

    It connects to nothing before :meth:`start`.
    """

    def __init__(self, spread: SpreadTopics, config: ClientConfig) -> None:
        """Follows the table of the cluster that ``config`` names."""
        self._followed = FollowedSpreads(spread.topics, SpreadsReader(KafkaCluster(dict(config))))
        self._places: Mapping[str, AccountPlace] = {
            topic.name: AccountPlace(
                topic,
                text_maker(topic.record_format, spread.schemas, spread.protobuf),
                self._followed.of(topic),
            )
            for topic in spread.topics
        }

    def start(self) -> None:
        """Reads what is applied, and again on a thread of its own until :meth:`close`."""
        self._followed.refresh()
        self._followed.start()

    def close(self) -> None:
        """Ends the thread."""
        self._followed.close()

    def partition(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: Headers,
    ) -> int:
        """Returns the partition of a record; -1: its topic takes no spreads.

        Raises:
            SpreadsUnknownError: if it is not known which spreads count for it.
            RecordRejectedError: if it has no account or event time that can be read.
        """
        place = self._places.get(topic)
        if place is None:
            return -1
        try:
            return place(_encoded(value), _encoded(key), headers)
        except LookupError:
            raise RecordRejectedError(topic, _UNPLACED) from None


class AccountPlace:
    """The partition of a record of a topic that is partitioned by account.

    Args:
        topic: by account.
        text_of: of values of registered formats; None: values are JSON texts.
        applied: what was applied beside the declared spreads.
    """

    def __init__(
        self, topic: Topic, text_of: TextOf | None, applied: AppliedSpreads | None
    ) -> None:
        strategy = topic.partitioning
        if not isinstance(strategy, ByAccount):
            raise TypeError(f"topic {topic.name!r} is not partitioned by account")
        self._reads = AccountReader(topic, text_of)
        self._start_of = functools.partial(window_start, window=strategy.window)
        # The account is that which was read, from wherever the topic has it.
        by_account = replace(strategy, account=None)
        self._partition = partition_of(by_account, topic.partitions, applied)

    def __call__(self, value: bytes | None, key: bytes | None, headers: Headers) -> int:
        """Returns it. Raises LookupError if the record has no account or event time."""
        place = self._reads.place_of(value, key, tuple(headers))
        if place is None:
            raise LookupError
        account, number = place
        return self._partition({}, account, self._start_of(number))


def _encoded(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
