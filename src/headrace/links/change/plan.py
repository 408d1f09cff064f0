"""What copies a topic into another one, on one cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.errors import TopicChangeRefusedError
from headrace.kafka.client.headers import headers_of
from headrace.kafka.origin import Origin, origins
from headrace.kafka.read.range_reader import Record, read_records
from headrace.links.change.places import RecordPlaces, placing
from headrace.links.change.spreads import ChangeSpreads
from headrace.links.change.status import ChangeStatus
from headrace.links.change.topics import live_topic, ranges_of
from headrace.links.copy_ends import Copies
from headrace.links.copying.plan import CopyPlan, LastCopies, Placing
from headrace.links.target import LinkTarget
from headrace.model import Topic, TopicPartition
from headrace.project.site_clusters import own_cluster
from headrace.settings import Settings
from headrace.topics.tail import json_text_of

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class NewRecords:
    """The records of the new topic.

    Attributes:
        last: the last copy of each partition of the old topic.
        own: how many are no copies.
        deleted: offsets that retention has deleted.
    """

    last: Mapping[TopicPartition, Origin]
    own: int
    deleted: int


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
        spreads: that are applied to the new topic; None: it takes none.
        known_copies: the last copy of each partition; None: they are read where they are needed.
    """

    places: RecordPlaces = field(kw_only=True, repr=False)
    spreads: ChangeSpreads | None = field(default=None, kw_only=True, repr=False)
    known_copies: Mapping[TopicPartition, Origin] | None = field(
        default=None, kw_only=True, repr=False
    )

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
        return placing(self.places, self.new, self.record_error)

    def following(self) -> AbstractContextManager[None]:
        """Returns the block within which records can be placed. Raises as ``ChangeSpreads``."""
        return nullcontext() if self.spreads is None else self.spreads.followed()

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

    def _last_copies(self, _: Copies) -> Mapping[TopicPartition, Origin]:
        if self.known_copies is not None:
            return self.known_copies
        return require_last_copies(self, read_new(self))


def change_plan(settings: Settings, old: Topic, new: Topic) -> ChangePlan:
    """Returns what copies a topic into another one.

    Raises:
        TopicMissingError: if the new topic is not in Kafka.
        BrokerUnreachableError: if the brokers do not answer.
    """
    cluster = own_cluster(settings)
    config = cluster.client_config()
    text_of = json_text_of(settings, new.record_format)
    spreads = ChangeSpreads(old.name, new, config, text_of) if new.takes_spreads else None
    return ChangePlan(
        f"{old.name} to {new.name}",
        # By its id: of a new topic that was recreated, no position is known, and all is copied.
        f"headrace.change.{old.name}.{live_topic(config, new.name).topic_id}",
        cluster.site,
        cluster.site,
        config,
        config,
        {old.name: new.name},
        places=RecordPlaces(old, new, text_of, None if spreads is None else spreads.place),
        spreads=spreads,
    )


def never() -> bool:
    """Returns that nothing is stopped."""
    return False


def read_new(plan: ChangePlan, is_stopped: Callable[[], bool] = never) -> NewRecords:
    """Reads all of the new topic, as each of its partitions may have copies of any other.

    Raises:
        TopicMissingError: if the topic is not in Kafka.
        BrokerUnreachableError: if the brokers do not answer.
        AuthorizationError: if an ACL is missing.
    """
    last: dict[TopicPartition, Origin] = {}
    own = 0
    ranges = ranges_of(plan.target, plan.new)
    for record in read_records(plan.target, plan.group, ranges):
        if is_stopped():
            break
        origin = plan.origin_of(record)
        if origin is None:
            own += 1
            continue
        place = TopicPartition(plan.old, origin.partition)
        last[place] = max(last.get(place, origin), origin, key=lambda at: at.offset)
    return NewRecords(last, own, sum(range_.start for range_ in ranges))


def require_last_copies(plan: ChangePlan, new: NewRecords) -> Mapping[TopicPartition, Origin]:
    """Returns the last copy of each partition.

    Raises:
        TopicChangeRefusedError: if the new topic has deleted records.
    """
    if new.deleted:
        reason = (
            f"its position is not known any more, and {plan.new} has deleted records: which of "
            f"{plan.old} were copied can't be said. Delete {plan.new} and its records, "
            "`headrace apply`, and copy again"
        )
        raise TopicChangeRefusedError(plan.old, plan.new, reason)
    return new.last
