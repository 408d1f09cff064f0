"""What the new topic has: copies, by which it says how far each partition is, and other records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import TopicChangeRefusedError
from headrace.kafka.origin import Origin
from headrace.kafka.read.range_reader import read_records
from headrace.links.change.topics import ranges_of
from headrace.model import TopicPartition

if TYPE_CHECKING:
    from headrace.links.change.plan import ChangePlan


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
