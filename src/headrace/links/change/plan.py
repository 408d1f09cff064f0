"""What copies a topic into another one, on one cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.errors import TopicChangeRefusedError, TopicMissingError
from headrace.kafka.client.admin_requests import LiveTopic, describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.headers import headers_of
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.origin import Origin, origins
from headrace.kafka.read.range_reader import Record, read_records
from headrace.links.change.places import ByAccounts, RecordPlaces, placing
from headrace.links.change.status import ChangeStatus
from headrace.links.copy_ends import Copies
from headrace.links.copying.plan import CopyPlan, LastCopies, Placing
from headrace.links.target import LinkTarget
from headrace.model import OffsetRange, Topic, TopicPartition
from headrace.project.site_clusters import own_cluster
from headrace.settings import Settings
from headrace.topics.spreads.placing import SpreadPlaces, SpreadTopics
from headrace.topics.tail import json_text_of

if TYPE_CHECKING:
    from pyspark.sql import Column


class _All:
    """Copies each record."""

    def counter_of(self, _headers: Collection[tuple[str, bytes | None]]) -> str:
        return "records"

    def is_copied_column(self, _headers: Column) -> Column:
        from pyspark.sql import functions as f

        return f.lit(True)


@dataclass(frozen=True)
class ChangePlan(CopyPlan):
    """A topic that is copied into another one of its cluster.

    Positions are committed for partitions of the topic that is copied.

    Attributes:
        places: where records go.
    """

    places: RecordPlaces = field(kw_only=True, repr=False)

    status = ChangeStatus

    @property
    def filter(self) -> _All:
        return _All()

    @property
    def old(self) -> str:
        """Returns the topic that is copied."""
        return next(iter(self.copies))

    @property
    def new(self) -> str:
        """Returns the topic with the copies."""
        return self.copies[self.old]

    def source_of(self, copy: TopicPartition) -> TopicPartition:
        return copy

    def copy_of(self, source: TopicPartition) -> TopicPartition:
        return source

    @property
    def placed(self) -> Placing:
        return placing(self.places, self.new)

    @property
    def last_copies(self) -> LastCopies:
        return self._last_copies

    @property
    def link_target(self) -> LinkTarget:
        return replace(super().link_target, shared=(self.old,))

    def origin_of(self, record: Record) -> Origin | None:
        """Returns where a record of the new topic was in the old one; None: it is no copy."""
        known = origins(headers_of(record) or ())
        is_copy = known and (known[-1].site, known[-1].topic) == (self.origin_site, self.old)
        return known[-1] if is_copy else None

    def _last_copies(self, copies: Copies) -> Mapping[TopicPartition, Origin]:
        """Returns the last copy of each partition, as all of the new topic may have its copies."""
        if not copies.sources:
            return {}
        last: dict[TopicPartition, Origin] = {}
        ranges = ranges_of(self.target, self.new)
        for record in read_records(self.target, self.group, ranges):
            origin = self.origin_of(record)
            if origin is not None:
                place = TopicPartition(self.old, origin.partition)
                last[place] = max(last.get(place, origin), origin, key=lambda at: at.offset)
        if any(range_.start > 0 for range_ in ranges):
            reason = (
                f"its position is not known any more, and {self.new} has deleted records: which of "
                f"{self.old} were copied can't be said. Delete {self.new} and its records, "
                "`headrace apply`, and copy again"
            )
            raise TopicChangeRefusedError(self.old, self.new, reason)
        return last


def live_topic(config: ClientConfig, topic: str) -> LiveTopic:
    """Returns a topic as it is.

    Raises:
        TopicMissingError: if there is no such topic.
        BrokerUnreachableError: if the brokers do not answer.
    """
    live = describe(config, [topic]).get(topic)
    if live is None:
        raise TopicMissingError(topic)
    return live


def ranges_of(config: ClientConfig, topic: str) -> list[OffsetRange]:
    """Returns the offsets that each partition of a topic has. Raises as :func:`live_topic`."""
    marks = watermarks(config, live_topic(config, topic).all_partitions)
    return [OffsetRange(at, start, end) for at, (start, end) in sorted(marks.items())]


def change_plan(settings: Settings, old: Topic, new: Topic) -> ChangePlan:
    """Returns what copies a topic into another one.

    Raises:
        TopicMissingError: if the new topic is not in Kafka.
        BrokerUnreachableError: if the brokers do not answer.
    """
    cluster = own_cluster(settings)
    config = cluster.client_config()
    return ChangePlan(
        f"{old.name} to {new.name}",
        # By its id: of a new topic that was recreated, no position is known, and all is copied.
        f"headrace.change.{old.name}.{live_topic(config, new.name).topic_id}",
        cluster.site,
        cluster.site,
        config,
        config,
        {old.name: new.name},
        places=RecordPlaces(
            old,
            new,
            json_text_of(settings, new.record_format),
            _by_account(settings, new, config),
        ),
    )


def _by_account(settings: Settings, new: Topic, config: ClientConfig) -> ByAccounts | None:
    spread = SpreadTopics.of([new], settings)
    if spread is None:
        return None
    places = SpreadPlaces(spread, config)

    def by_account(
        value: bytes | None, key: bytes | None, headers: Collection[tuple[str, bytes | None]]
    ) -> int:
        return places.partition(new.name, value, key, headers)

    return by_account
